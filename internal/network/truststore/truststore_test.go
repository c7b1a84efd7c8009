package truststore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// authority makes a certificate of an authority.
func authority(t *testing.T, subject pkix.Name) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func named(t *testing.T, name string) *x509.Certificate {
	return authority(t, pkix.Name{CommonName: name})
}

func file(content []byte) *fstest.MapFile { return &fstest.MapFile{Data: content, Mode: 0o644} }

func plan(t *testing.T, guest fs.FS, r Request) *Plan {
	t.Helper()
	p, err := Make(guest, r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// carryOut writes the files of a plan, and returns their paths.
func carryOut(guest fstest.MapFS, p *Plan) []string {
	var paths []string
	for _, f := range p.Files {
		guest[strings.TrimPrefix(f.Path, "/")] = file(f.Content)
		paths = append(paths, f.Path)
	}
	return paths
}

// TestDistributions makes plans for the files of several, and carries them out. A second
// plan is empty then, and one for another authority leaves the first one.
func TestDistributions(t *testing.T) {
	root, ours, other := named(t, "root"), named(t, "ours"), named(t, "other")
	bundle := []byte("# Root\n" + strings.TrimSuffix(string(encode(root)), "\n")) // without a line break at its end
	ramet := "ramet-" + fingerprint(ours) + ".crt"
	for _, c := range []struct {
		what  string
		files map[string][]byte
		want  []string
	}{
		{"nothing", nil, []string{"/etc/ssl/certs/ca-certificates.crt"}},
		{
			"Debian",
			map[string][]byte{"etc/ssl/certs/ca-certificates.crt": bundle, "usr/local/share/ca-certificates/x": nil, "etc/ssl/certs/12345678.0": nil},
			[]string{"/etc/ssl/certs/" + hashName(t, ours), "/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/" + ramet},
		},
		{
			"Alpine",
			map[string][]byte{"etc/ssl/certs/ca-certificates.crt": bundle, "etc/ssl/cert.pem": bundle},
			[]string{"/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt"},
		},
		{
			"Fedora",
			map[string][]byte{"etc/pki/tls/certs/ca-bundle.crt": bundle, "etc/pki/ca-trust/source/anchors/x": nil},
			[]string{"/etc/pki/ca-trust/source/anchors/" + ramet, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt"},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			guest := fstest.MapFS{}
			for name, content := range c.files {
				guest[name] = file(content)
			}
			r := Request{Trusted: encode(ours), Roots: encode(root)}
			p := plan(t, guest, r)
			got := carryOut(guest, p)
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("the plan writes %q, not %q", got, c.want)
			}
			if p.Env["SSL_CERT_FILE"] != "/etc/ssl/certs/ca-certificates.crt" || p.Env["NODE_EXTRA_CA_CERTS"] == "" || len(p.Problems) > 0 {
				t.Errorf("the plan is %+v", p)
			}
			for name := range guest {
				if strings.Contains(name, "bundle") || strings.HasSuffix(name, ".pem") || strings.HasSuffix(name, "certificates.crt") {
					trusts(t, guest[name].Data, root, ours)
				}
			}
			if again := plan(t, guest, r); len(again.Files) > 0 {
				t.Errorf("once more it writes %q", again.Files[0].Path)
			}
			carryOut(guest, plan(t, guest, Request{Trusted: slices.Concat(encode(other), encode(ours))}))
			trusts(t, guest[mainBundle].Data, root, ours, other)
		})
	}
}

func hashName(t *testing.T, c *x509.Certificate) string {
	t.Helper()
	h, err := subjectHash(c)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%08x.0", h)
}

// trusts checks that a bundle has certificates, once each, and is one to other readers.
func trusts(t *testing.T, bundle []byte, certs ...*x509.Certificate) {
	t.Helper()
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		t.Error("the bundle is none")
	}
	for _, c := range certs {
		if n := bytes.Count(bundle, bytes.TrimSuffix(encode(c), []byte("\n"))); n != 1 {
			t.Errorf("the bundle has %s %d times", c.Subject, n)
		}
	}
}

// TestHashesOfTwoAuthorities have the same name, and so the same digest.
func TestHashesOfTwoAuthorities(t *testing.T) {
	a, b := named(t, "same"), named(t, "same")
	guest := fstest.MapFS{"etc/ssl/certs/12345678.0": file(nil)}
	got := carryOut(guest, plan(t, guest, Request{Trusted: slices.Concat(encode(a), encode(b))}))
	first := "/etc/ssl/certs/" + hashName(t, a)
	if !slices.Contains(got, first) || !slices.Contains(got, strings.TrimSuffix(first, "0")+"1") {
		t.Errorf("the plan writes %q", got)
	}
	if again := plan(t, guest, Request{Trusted: slices.Concat(encode(b), encode(a))}); len(again.Files) > 0 {
		t.Errorf("once more it writes %q", again.Files[0].Path)
	}
}

// TestSubjectHash asks openssl, about odd names and about all authorities of this machine.
func TestSubjectHash(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not on this machine")
	}
	certs := []*x509.Certificate{
		authority(t, pkix.Name{Country: []string{"DE"}, Organization: []string{"Über  GmbH & Co. KG "}, CommonName: " A\tb  C"}),
		authority(t, pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: asn1.RawValue{Class: 0, Tag: asn1.TagIA5String, Bytes: []byte("Ia5 NAME")}},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: asn1.RawValue{Class: 0, Tag: asn1.TagBMPString, Bytes: []byte{0, 'B', 0, 'm', 0, 'p', 0x20, 0xac}}},
			{Type: asn1.ObjectIdentifier{2, 5, 4, 11}, Value: asn1.RawValue{Class: 0, Tag: asn1.TagT61String, Bytes: []byte("T61 \xe4")}},
		}}),
	}
	if host, err := os.ReadFile("/" + mainBundle); err == nil {
		for block, rest := pem.Decode(host); block != nil; block, rest = pem.Decode(rest) {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue // openssl takes what crypto/x509 does not
			}
			certs = append(certs, c)
		}
	}
	for _, c := range certs {
		cmd := exec.Command(openssl, "x509", "-noout", "-subject_hash")
		cmd.Stdin = bytes.NewReader(encode(c))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(hashName(t, c), ".0"); got != strings.TrimSpace(string(out)) {
			t.Errorf("the digest of %s is %s, and openssl says %s", c.Subject, got, out)
		}
	}
	t.Logf("%d names", len(certs))
}

// TestOddFiles are files of a guest that are not what they should be: it may have made them.
func TestOddFiles(t *testing.T) {
	ours := named(t, "ours")
	guest := fstest.MapFS{
		"etc/ssl/certs/java/cacerts":               file([]byte("not a store")),
		"usr/lib/jvm/a/lib/security/cacerts":       file(append([]byte{0xfe, 0xed, 0xfe, 0xed}, make([]byte, 100)...)),
		"usr/lib/jvm/b/lib/security/cacerts":       file(nil),
		"etc/ssl/cert.pem/x":                       file(nil), // a directory
		"etc/pki/tls/certs/ca-bundle.crt":          file(make([]byte, maxFile+1)),
		"usr/local/share/ca-certificates":          file(nil), // a file
		"etc/ssl/certs/ca-certificates.crt":        file([]byte("no certificates in it")),
		"etc/pki/ca-trust/source/anchors/ours.crt": file(encode(ours)),
	}
	p := plan(t, guest, Request{Trusted: encode(ours)})
	if len(p.Problems) != 5 {
		t.Errorf("the problems are %q", p.Problems)
	}
	var got []string
	for _, f := range p.Files {
		got = append(got, f.Path)
	}
	if want := []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/source/anchors/ramet-" + fingerprint(ours) + ".crt"}; !slices.Equal(got, want) {
		t.Errorf("the plan writes %q", got)
	}
}

func TestRequestIsChecked(t *testing.T) {
	for what, text := range map[string]string{
		"no PEM":     "x",
		"a key":      "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		"no content": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	} {
		if _, err := Make(fstest.MapFS{}, Request{Trusted: []byte(text)}); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestMissing(t *testing.T) {
	a, b, c := named(t, "a"), named(t, "b"), named(t, "c")
	host := slices.Concat(encode(a), []byte("# text\n"), encode(b), encode(b), encode(c), []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	if got := Missing(host, encode(a)); !bytes.Equal(got, slices.Concat(encode(b), encode(c))) {
		t.Errorf("missing are %s", got)
	}
	if got := Missing(host, host); got != nil {
		t.Errorf("missing are %s", got)
	}
}

// FuzzGuest gives a plan files of a guest that can be anything.
func FuzzGuest(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1})
	f.Add([]byte(nil), []byte{0x30, 0x82})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ours"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	ours := pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
	f.Fuzz(func(t *testing.T, bundle, store []byte) {
		guest := fstest.MapFS{mainBundle: file(bundle), "etc/ssl/certs/java/cacerts": file(store)}
		p, err := Make(guest, Request{Trusted: ours})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Files {
			if f.Path == "/"+mainBundle && !bytes.HasPrefix(f.Content, bundle) {
				t.Errorf("the bundle %q becomes %q", bundle, f.Content)
			}
		}
	})
}
