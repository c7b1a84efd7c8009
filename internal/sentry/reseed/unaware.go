package reseed

import (
	"path"
	"slices"
	"strings"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

// unaware are libraries with a generator that does not notice a copy, by how their files
// are called.
var unaware = []struct{ file, name string }{
	{"libgnutls.so", "GnuTLS"},
	{"libgcrypt.so", "libgcrypt"},
	{"libsoftokn3.so", "NSS"},
	{"libmbedcrypto.so", "Mbed TLS"},
	{"libwolfssl.so", "wolfSSL"},
	{"libs2n.so", "s2n"},
	{"libjvm.so", "Java's SecureRandom"},
}

// Unaware returns the generators that a process has loaded and that take no new seed. It
// may never have drawn from them.
func Unaware(ctx context.Context, m *mm.MemoryManager) (names []string) {
	var last string
	m.ReadMapsDataInto(ctx, func(_, _ hostarch.Addr, _ hostarch.AccessType, _ string, _ uint64, _, _ uint32, _ uint64, file string) {
		if file == last { // one mapping of a file follows another
			return
		}
		last = file
		if name := unawareIn(file); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// unawareIn returns the generator in a library, or "".
func unawareIn(file string) string {
	base := path.Base(file)
	for _, u := range unaware {
		if strings.HasPrefix(base, u.file) {
			return u.name + " takes no new seed"
		}
	}
	return ""
}
