package truststore

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
	pkcs12 "software.sslmate.com/src/go-pkcs12"
)

// keyStores are stores with one root, in both formats.
func keyStores(t *testing.T, root *x509.Certificate) map[string][]byte {
	t.Helper()
	jks := keystore.New()
	if err := jks.SetTrustedCertificateEntry("root", keystore.TrustedCertificateEntry{CreationTime: time.Now(), Certificate: keystore.Certificate{Type: "X509", Content: root.Raw}}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := jks.Store(&b, []byte(javaPassword)); err != nil {
		t.Fatal(err)
	}
	modern, err := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{root}, javaPassword)
	if err != nil {
		t.Fatal(err)
	}
	passwordless, err := pkcs12.Passwordless.EncodeTrustStore([]*x509.Certificate{root}, "")
	if err != nil {
		t.Fatal(err)
	}
	stores := map[string][]byte{"JKS": b.Bytes(), "PKCS12": modern, "PKCS12 without a password": passwordless}
	if host, err := os.ReadFile("/etc/ssl/certs/java/cacerts"); err == nil {
		stores["this machine's"] = host
	}
	return stores
}

// TestJava asks keytool what is in the stores then.
func TestJava(t *testing.T) {
	root, ours := named(t, "root"), named(t, "ours")
	keytool, lookErr := exec.LookPath("keytool")
	for what, store := range keyStores(t, root) {
		t.Run(what, func(t *testing.T) {
			const name = "usr/lib/jvm/java-17/lib/security/cacerts"
			guest := fstest.MapFS{name: file(store)}
			p := plan(t, guest, Request{Trusted: encode(ours)})
			if got := carryOut(guest, p); !slices.Contains(got, "/"+name) || len(p.Problems) > 0 {
				t.Fatalf("the plan writes %q, with problems %q", got, p.Problems)
			}
			if again := plan(t, guest, Request{Trusted: encode(ours)}); len(again.Files) > 0 {
				t.Errorf("once more it writes %q", again.Files[0].Path)
			}
			if lookErr != nil {
				t.Skip("keytool is not on this machine")
			}
			path := filepath.Join(t.TempDir(), "cacerts")
			if err := os.WriteFile(path, guest[name].Data, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), keytool, "-list", "-rfc", "-keystore", path, "-storepass", javaPassword).CombinedOutput()
			if err != nil {
				t.Fatalf("keytool: %v: %s", err, out)
			}
			has := inBundle(out)
			if !has[string(ours.Raw)] || what != "this machine's" && (!has[string(root.Raw)] || len(has) != 2) {
				t.Errorf("keytool sees %d certificates", len(has))
			}
		})
	}
}

// TestCostlyStores are made to take memory or time without end.
func TestCostlyStores(t *testing.T) {
	root, ours := named(t, "root"), named(t, "ours")
	stores := keyStores(t, root)
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	jks := func(parts ...[]byte) []byte {
		return slices.Concat(append([][]byte{u32(jksMagic), u32(2)}, parts...)...)
	}
	entry := slices.Concat(u32(2), []byte{0, 1, 'a'}, make([]byte, 8), []byte{0, 4}, []byte("X509"))
	modern := stores["PKCS12"]
	rounds := func(n int64) []byte {
		der, err := asn1.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	was := rounds(2048)
	if bytes.Count(modern, was) < 2 {
		t.Fatal("the store does not have the rounds that are to be replaced")
	}
	key := keystore.New()
	if err := key.SetPrivateKeyEntry("k", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: []byte("x")}, []byte(javaPassword)); err != nil {
		t.Fatal(err)
	}
	var withKey bytes.Buffer
	if err := key.Store(&withKey, []byte(javaPassword)); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		store []byte
		want  string
	}{
		"a certificate of 4 GiB":   {jks(u32(1), entry, u32(1<<32-1)), "cut off"},
		"entries that are not":     {jks(u32(maxEntries), entry), "cut off"},
		"entries without end":      {jks(u32(1 << 31)), "entries"},
		"a private key":            {withKey.Bytes(), "no trusted certificate"},
		"rounds without end":       {slices.Concat([]byte{0x30, 0x0a, 0x04, 0x02, 1, 2}, []byte{0x02, 0x04, 0x7f, 0xff, 0xff, 0xff}), "rounds"},
		"rounds of many bytes":     {slices.Concat([]byte{0x30, 0x0f, 0x04, 0x02, 1, 2}, []byte{0x02, 0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0}), "rounds"},
		"many times a few rounds":  {bytes.Repeat(slices.Concat([]byte{0x30, 0x09, 0x04, 0x02, 1, 2}, rounds(500_000)), 3), "rounds"},
		"rounds in the real place": {bytes.ReplaceAll(modern, was, []byte{0x02, 0x02, 0x7f, 0xff}), ""}, // which spoils it,
	} {
		guest := fstest.MapFS{"etc/ssl/certs/java/cacerts": file(c.store)}
		p := plan(t, guest, Request{Trusted: encode(ours)})
		if len(p.Problems) != 1 || !strings.Contains(p.Problems[0], c.want) {
			t.Errorf("%s: the problems are %q", what, p.Problems)
		}
	}
	left := int64(maxIterations)
	if err := checkRounds(modern, &left, 0); err != nil || left > maxIterations-2*2048 {
		t.Errorf("of a store that was made with 2048 rounds twice, %d were seen, %v", maxIterations-left, err)
	}
}
