package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"ramet.dev/ramet/internal/network/truststore"
)

// nameServer answers questions on loopback until the test ends. It returns its port.
func nameServer(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(b[:n]); err != nil {
				t.Errorf("the question: %v", err)
				continue
			}
			m.Response, m.RCode = true, dnsmessage.RCodeRefused
			answer, err := m.Pack()
			if err != nil {
				t.Error(err)
				continue
			}
			_, _ = c.WriteTo([]byte("stray"), from) // is not taken for an answer
			_, _ = c.WriteTo(answer, from)
		}
	})
	t.Cleanup(func() {
		c.Close()
		wg.Wait()
	})
	_, port, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestProbeResolver(t *testing.T) {
	port := nameServer(t)
	for name, c := range map[string]struct {
		files  map[string]string
		status Status
		detail string
	}{
		"answers":         {map[string]string{resolvConf: "# x\nnameserver 127.0.0.1\noptions edns0\n"}, StatusOK, "127.0.0.1 answers"},
		"one of two":      {map[string]string{resolvConf: "nameserver 127.0.0.1\nnameserver 127.0.0.2"}, StatusWarn, "1 of 127.0.0.1, 127.0.0.2 answer"},
		"nobody":          {map[string]string{resolvConf: "nameserver 127.0.0.2"}, StatusWarn, "did not answer"},
		"none configured": {map[string]string{resolvConf: "search example.com\nnameserver\nnameserver x\n"}, StatusOK, "not checked: /etc/resolv.conf names no server"},
		"no file":         {nil, StatusWarn, "cannot look up names"},
	} {
		f := probeResolver(t.Context(), &machine{root: fakeRoot(t, c.files), dnsPort: port})
		if f.Status != c.status || !strings.Contains(f.Detail, c.detail) || f.Status != StatusOK && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestProbeProxy(t *testing.T) {
	for name, c := range map[string]struct {
		env    map[string]string
		status Status
		detail string
	}{
		"none":         {nil, StatusOK, "no HTTPS_PROXY"},
		"plain":        {map[string]string{"HTTPS_PROXY": "proxy.example.com:3128"}, StatusOK, "HTTPS_PROXY is proxy.example.com:3128"},
		"small":        {map[string]string{"https_proxy": "https://proxy.example.com", "no_proxy": "localhost, .example.com,10.0.0.0/8,[::1]:80,*,"}, StatusOK, "https_proxy is proxy.example.com"},
		"password":     {map[string]string{"HTTPS_PROXY": "http://user:secret@proxy.example.com:1"}, StatusOK, "HTTPS_PROXY is proxy.example.com:1"},
		"no URL":       {map[string]string{"HTTPS_PROXY": "http://user:secret@%zz"}, StatusWarn, "HTTPS_PROXY: it is not the URL of a proxy"},
		"scheme":       {map[string]string{"HTTPS_PROXY": "socks5://secret"}, StatusWarn, `its scheme is "socks5"`},
		"no host":      {map[string]string{"HTTPS_PROXY": "http://"}, StatusWarn, "not the URL"},
		"exception":    {map[string]string{"HTTPS_PROXY": "p:1", "NO_PROXY": "a,http://b"}, StatusWarn, `NO_PROXY: "http://b" is not a name`},
		"no range":     {map[string]string{"HTTPS_PROXY": "p:1", "NO_PROXY": "10.0.0.0/33"}, StatusWarn, "is not a range"},
		"no such port": {map[string]string{"HTTPS_PROXY": "p:1", "NO_PROXY": "a:0"}, StatusWarn, "does not end with a port"},
	} {
		f := probeProxy(t.Context(), &machine{env: func(v string) string { return c.env[v] }})
		if f.Status != c.status || !strings.Contains(f.Detail, c.detail) || f.Status != StatusOK && f.Remedy == "" || strings.Contains(f.Detail, "secret") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// authority returns a new certificate of an authority, in PEM.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestProbeCABundle(t *testing.T) {
	a, b, own := authority(t), authority(t), authority(t)
	for name, c := range map[string]struct {
		files  map[string]string
		env    string
		status Status
		detail string
	}{
		"Debian's":     {map[string]string{truststore.HostBundles()[0]: a + b, debianCAs + "/a.crt": a, debianCAs + "/b.crt": b}, "", StatusOK, "/etc/ssl/certs/ca-certificates.crt has 2 certificates, 0 of which Debian's bundle lacks"},
		"with an own":  {map[string]string{truststore.HostBundles()[0]: a + own, debianCAs + "/a.crt": a}, "", StatusOK, "has 2 certificates, 1 of which"},
		"Fedora's":     {map[string]string{truststore.HostBundles()[1]: a}, "", StatusOK, "ca-bundle.crt has 1 certificates; which"},
		"by variable":  {map[string]string{truststore.HostBundles()[0]: a + b, "srv/own.pem": own}, "/srv/own.pem", StatusOK, "/srv/own.pem has 1"},
		"missing":      {nil, "", StatusWarn, "no bundle"},
		"empty":        {map[string]string{truststore.HostBundles()[0]: "nothing"}, "", StatusWarn, "has no certificates"},
		"none by name": {map[string]string{truststore.HostBundles()[0]: a}, "/srv/none.pem", StatusWarn, "no bundle"},
		"a directory":  {map[string]string{truststore.HostBundles()[0] + "/x": a}, "", StatusWarn, "is a directory"},
	} {
		f := probeCABundle(t.Context(), &machine{root: fakeRoot(t, c.files), env: func(v string) string {
			if v == "SSL_CERT_FILE" {
				return c.env
			}
			return ""
		}})
		if f.Status != c.status || !strings.Contains(f.Detail, c.detail) || f.Status != StatusOK && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func FuzzNameServers(f *testing.F) {
	f.Add("nameserver 127.0.0.1\nnameserver ::1%eth0\n")
	f.Fuzz(func(t *testing.T, text string) {
		servers := nameServers(text)
		if len(servers) > maxServers {
			t.Errorf("%d servers", len(servers))
		}
		for _, s := range servers {
			if host, _, err := net.SplitHostPort(net.JoinHostPort(s, "53")); err != nil || host != s {
				t.Errorf("%q is no address", s)
			}
		}
	})
}
