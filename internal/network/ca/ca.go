package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// authorityLife is long because a snapshot with the certificate may be restored years
	// after it was made.
	authorityLife = 20 * 365 * 24 * time.Hour
	// leafLife is below what clients take: 398 days.
	leafLife = 30 * 24 * time.Hour
	// backdate lets clocks of clients be late.
	backdate = 48 * time.Hour
	// renewBefore is how long a certificate must be valid that is handed out.
	renewBefore = 24 * time.Hour
	// maxLeaves bounds the certificates that are kept; more are made again.
	maxLeaves = 256

	certificateType = "CERTIFICATE"
	keyType         = "EC PRIVATE KEY"
)

// Options say what an authority is for.
type Options struct {
	// Tree is the id of the tree, for the subject of the certificate.
	Tree string
	// Names are all the names that certificates may be for, with those below them. None is
	// no constraint: a policy that is replaced later may have other names.
	Names []string
	// Now is the clock; time.Now if it is nil.
	Now func() time.Time
}

// Authority signs certificates for names. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time

	// leafKey is that of all leaves: they are for the same gateway.
	leafKey *ecdsa.PrivateKey
	// making is held while a leaf is made, so that a burst of connections makes one.
	making sync.Mutex
	leaves *lru.Cache[string, *tls.Certificate]
}

// New makes an authority.
func New(o Options) (*Authority, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of authority: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{Organization: []string{"Ramet"}, CommonName: "Ramet gateway of " + o.Tree},
		NotBefore:             o.Now().Add(-backdate),
		NotAfter:              o.Now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if len(o.Names) > 0 {
		template.PermittedDNSDomains = o.Names
		template.PermittedDNSDomainsCritical = true
		// A constraint of names of hosts says nothing about addresses.
		template.ExcludedIPRanges = []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
			{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate of authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read certificate of authority: %w", err)
	}
	return assemble(cert, key, o.Now)
}

func assemble(cert *x509.Certificate, key *ecdsa.PrivateKey, now func() time.Time) (*Authority, error) {
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of certificates: %w", err)
	}
	leaves, err := lru.New[string, *tls.Certificate](maxLeaves)
	if err != nil {
		return nil, fmt.Errorf("make cache of certificates: %w", err)
	}
	return &Authority{cert: cert, key: key, now: now, leafKey: leafKey, leaves: leaves}, nil
}

// Parse reads what Marshal wrote.
func Parse(text []byte) (*Authority, error) {
	var cert *x509.Certificate
	var key *ecdsa.PrivateKey
	for len(text) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("read authority: it is not in PEM")
		}
		var err error
		switch block.Type {
		case certificateType:
			cert, err = x509.ParseCertificate(block.Bytes)
		case keyType:
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			return nil, fmt.Errorf("read authority: it has a block %q", block.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("read authority: %w", err)
		}
		text = rest
	}
	if cert == nil || key == nil {
		return nil, errors.New("read authority: its certificate or its key is missing")
	}
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("read authority: its certificate is not that of its key")
	}
	return assemble(cert, key, time.Now)
}

// Marshal returns the certificate and the key in PEM. Whoever has it can pretend to be any
// server to the sandboxes of the tree.
func (a *Authority) Marshal() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write key of authority: %w", err)
	}
	return append(a.Certificate(), pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der})...), nil
}

// Certificate returns the certificate in PEM, for files of sandboxes.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: a.cert.Raw})
}

// String keeps the key out of logs.
func (a *Authority) String() string { return a.cert.Subject.CommonName }

// GoString is String.
func (a *Authority) GoString() string { return a.String() }

// Leaf returns a certificate for a name, made when it is first asked for.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(name)
	if c := a.kept(name); c != nil {
		return c, nil
	}
	a.making.Lock()
	defer a.making.Unlock()
	if c := a.kept(name); c != nil {
		return c, nil
	}
	c, err := a.makeLeaf(name)
	if err != nil {
		return nil, fmt.Errorf("make certificate of %q: %w", name, err)
	}
	a.leaves.Add(name, c)
	return c, nil
}

// kept returns the certificate of a name if there is one that is valid for long enough.
func (a *Authority) kept(name string) *tls.Certificate {
	c, ok := a.leaves.Get(name)
	if !ok || a.now().After(c.Leaf.NotAfter.Add(-renewBefore)) {
		return nil
	}
	return c
}

func (a *Authority) makeLeaf(name string) (*tls.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	notAfter := a.now().Add(leafLife)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		NotBefore:    a.now().Add(-backdate),
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{name},
	}
	if len(name) <= maxCommonName {
		template.Subject.CommonName = name // old clients look for it
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	// Clients would refuse it with a message that nobody understands; this is the same check.
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: a.now()}); err != nil {
		return nil, err
	}
	// The authority goes with it: some clients show the chain when they complain.
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leafKey, Leaf: leaf}, nil
}

// maxCommonName is a limit of X.520.
const maxCommonName = 64

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
