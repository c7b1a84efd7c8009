package reseed

import "testing"

func TestUnawareIn(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libgnutls.so.30.34.3": "GnuTLS takes no new seed",
		"/opt/jdk/lib/server/libjvm.so":                  "Java's SecureRandom takes no new seed",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3":       "",
		"/usr/lib/libgnutlsxx.so.30":                     "",
		"":                                               "",
	} {
		if got := unawareIn(file); got != want {
			t.Errorf("in %s: %q, want %q", file, got, want)
		}
	}
}
