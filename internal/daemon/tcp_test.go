package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// writePair writes a certificate of the given serial number for 127.0.0.1 and its
// key, and returns it.
func writePair(t *testing.T, dir string, serial int64) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key.pem": {Type: "PRIVATE KEY", Bytes: keyDER}, "cert.pem": {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestListensInTheClearOnThisMachineOnly(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:0": true, "localhost:0": true, "127.9.9.9:80": true,
		":0": false, "0.0.0.0:0": false, "[::]:0": false, "192.0.2.1:0": false, "example.org:80": false, "localhost.example.org:80": false, "127.0.0.1": false, "127.0.0.1.example.org:1": false,
		"127.0.0.1:99999": false, "127.0.0.1:-1": false, "127.0.0.1:": false, "127.0.0.1:http": false,
	} {
		if err := (Listen{Address: address}).check(); (err == nil) != ok || err != nil && api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", address, err)
		}
	}
	for name, l := range map[string]Listen{
		"no key": {Address: "127.0.0.1:0", CertFile: "c"}, "no certificate": {Address: "127.0.0.1:0", KeyFile: "k"}, "nowhere": {CertFile: "c", KeyFile: "k"},
		"ports of nowhere": {PortDomain: "ports.example.com"}, "no domain": {Address: "127.0.0.1:0", PortDomain: "a/b"},
	} {
		if err := l.check(); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Listen{Address: "127.0.0.1:0", CertFile: "/nonexistent", KeyFile: "/nonexistent"}).open(); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a certificate that is not there: %v", err)
	}
}

// TestHostsOfPorts: browsers on this machine find ports below localhost, and others only
// where they were told a domain.
func TestHostsOfPorts(t *testing.T) {
	local, far := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7300}, &net.TCPAddr{IP: net.IPv4zero, Port: 8443}
	for _, c := range []struct {
		l    Listen
		at   net.Addr
		want string // the URL's beginning
	}{
		{Listen{}, local, "http://80-sbx-a.localhost:7300/"},
		{Listen{CertFile: "c"}, local, "https://80-sbx-a.localhost:7300/"},
		{Listen{CertFile: "c"}, far, ""},
		{Listen{CertFile: "c", PortDomain: "ports.example.com"}, far, "https://80-sbx-a.ports.example.com:8443/"},
		{Listen{PortDomain: "ports.example.com"}, local, "https://80-sbx-a.ports.example.com/"},
	} {
		h, err := c.l.portHosts(c.at)
		if err != nil || h.ForBrowsers() != (c.want != "") {
			t.Errorf("%+v: %+v, %v", c.l, h, err)
		}
		if got := h.URL("sbx_a", 80, &url.URL{Path: "/"}, "x"); c.want != "" && !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v leads to %s", c.l, got)
		}
	}
}

// TestCertificatesAreReadAgain: a renewed certificate is shown without a restart,
// and a broken one does not take the place of a good one.
func TestCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	pair := &keyPair{certFile: filepath.Join(dir, "cert.pem"), keyFile: filepath.Join(dir, "key.pem")}
	serial := func() int64 {
		cert, err := pair.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	age := func(d time.Duration) {
		at := time.Now().Add(d)
		if err := os.Chtimes(pair.certFile, at, at); err != nil {
			t.Fatal(err)
		}
	}
	writePair(t, dir, 1)
	age(-3 * time.Hour)
	if got := serial(); got != 1 {
		t.Errorf("serial number %d", got)
	}
	writePair(t, dir, 2)
	age(-2 * time.Hour)
	if got := serial(); got != 2 {
		t.Errorf("after a renewal: serial number %d", got)
	}
	if err := os.WriteFile(pair.certFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	age(-time.Hour)
	if got := serial(); got != 2 {
		t.Errorf("after a broken renewal: serial number %d", got)
	}
}

func TestTLSListener(t *testing.T) {
	dir := t.TempDir()
	cert := writePair(t, dir, 1)
	l, err := Listen{Address: "127.0.0.1:0", CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	shaken := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).Handshake()
			c.Close()
		}
		shaken <- err
	}()
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := <-shaken; err != nil {
		t.Error(err)
	}
	if p := c.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
		t.Errorf("protocol %q", p)
	}
}
