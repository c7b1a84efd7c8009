package truststore

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"slices"
	"time"

	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
	pkcs12 "software.sslmate.com/src/go-pkcs12"
)

// javaPassword is that of all stores of authorities of Java. It protects nothing.
const javaPassword = "changeit"

// javaStores are the stores of Java's programs, as patterns of package path.
var javaStores = []string{
	"etc/ssl/certs/java/cacerts",
	"etc/pki/ca-trust/extracted/java/cacerts",
	"usr/lib/jvm/*/lib/security/cacerts",
	"usr/lib/jvm/*/jre/lib/security/cacerts",
	"opt/*/lib/security/cacerts",
	"opt/java/*/lib/security/cacerts",
	"usr/local/*/lib/security/cacerts",
}

// maxStores bounds the stores that are changed: each takes up to a second, and a guest can have
// any number.
const maxStores = 16

// jksMagic begins a store in Java's own format.
const jksMagic = 0xfeedfeed

// java adds the certificates to Java's stores.
func (p *planner) java() error {
	left := maxStores
	for _, pattern := range javaStores {
		names, err := fs.Glob(p.guest, pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			if left--; left < 0 {
				p.problem("/%s is one more of Java's stores than the %d that are changed", name, maxStores)
				return nil
			}
			if err := p.javaStore(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *planner) javaStore(name string) error {
	text, err := p.read(name)
	if err != nil || text == nil {
		return err
	}
	var next []byte
	if len(text) >= 4 && binary.BigEndian.Uint32(text) == jksMagic {
		next, err = p.jks(text)
	} else {
		next, err = p.pkcs12(text)
	}
	switch {
	case err != nil:
		p.problem("/%s cannot be changed: %v", name, err)
	case next != nil:
		p.write(name, next)
	}
	return nil
}

// jks returns a store in Java's own format with the certificates, or nil if it has them.
func (p *planner) jks(text []byte) ([]byte, error) {
	if err := checkJKS(text); err != nil {
		return nil, err
	}
	store := keystore.New(keystore.WithOrderedAliases())
	if err := store.Load(bytes.NewReader(text), []byte(javaPassword)); err != nil {
		return nil, err
	}
	changed := false
	for _, c := range p.trusted {
		alias := "ramet-" + fingerprint(c)
		if store.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry := keystore.TrustedCertificateEntry{CreationTime: time.Unix(0, 0), Certificate: keystore.Certificate{Type: "X509", Content: c.Raw}}
		if err := store.SetTrustedCertificateEntry(alias, entry); err != nil {
			return nil, err
		}
		changed = true
	}
	if !changed {
		return nil, nil
	}
	var b bytes.Buffer
	if err := store.Store(&b, []byte(javaPassword)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// pkcs12 is jks for the other format. From Java 18 on such a store has no password.
func (p *planner) pkcs12(text []byte) ([]byte, error) {
	if err := checkPKCS12(text); err != nil {
		return nil, err
	}
	encoder := pkcs12.Modern
	password := javaPassword
	certs, err := pkcs12.DecodeTrustStore(text, password)
	if err != nil {
		var perr error
		if certs, perr = pkcs12.DecodeTrustStore(text, ""); perr != nil {
			return nil, err
		}
		encoder, password = pkcs12.Passwordless, ""
	}
	n := len(certs)
	for _, c := range p.trusted {
		if !slices.ContainsFunc(certs[:n], c.Equal) {
			certs = append(certs, c)
		}
	}
	if len(certs) == n {
		return nil, nil
	}
	return encoder.EncodeTrustStore(certs, password)
}
