package network

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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// serveTLS runs a server of files.example.org at 198.51.100.1:443, and returns a file with the
// authority of its certificate.
func serveTLS(t *testing.T) (bundle string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the host"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"files.example.org"},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	bundle = filepath.Join(harness.NewDir(t), "bundle")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	serve(t, "198.51.100.1:443", func(c net.Conn) { _ = tls.Server(c, config).HandshakeContext(t.Context()) })
	return bundle
}

// mustVerify checks whether a guest trusts the server.
func mustVerify(n *harness.Node, ref string, trusted bool) {
	n.T.Helper()
	want := map[bool]string{true: "verified", false: "signed by unknown authority"}[trusted]
	if out := n.Guest(ref, "outside", "verify", "198.51.100.1:443", "files.example.org"); !strings.Contains(out, want) {
		n.T.Errorf("%s says %q, not %q", ref, out, want)
	}
	s := n.Get(ref)
	if count := map[bool]int{true: 1}[trusted]; s.TrustedCAs != count || (s.Env["SSL_CERT_FILE"] != "") != trusted {
		n.T.Errorf("%s trusts %d authorities of the host; its environment is %v", ref, s.TrustedCAs, s.Env)
	}
}

// TestTrust has guests verify a server whose authority only the host knows.
func TestTrust(t *testing.T) {
	bundle := serveTLS(t)
	n := newNode(t)
	n.Close()
	n.HostCAs = bundle
	n.Open()
	off, open := false, allow(t, "198.51.100.1:443")
	make := func(req api.CreateRequest) *api.Sandbox {
		t.Helper()
		req.Image = "box"
		s, err := n.Machine.Create(harness.AsOwner, req)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	set := func(ref string) {
		t.Helper()
		if _, err := n.Machine.SetNetwork(harness.AsOwner, ref, *open); err != nil {
			t.Fatal(err)
		}
	}

	make(api.CreateRequest{Name: "on", Network: open, Env: map[string]string{"PIP_CERT": "/mine"}})
	child, snap := n.Fork("on", 1)[0], n.Snapshot("on", api.SnapshotRequest{Memory: true})
	mustVerify(n, "on", true)
	if env := n.Get("on").Env; env["PIP_CERT"] != "/mine" || env["NODE_EXTRA_CA_CERTS"] == "" {
		t.Errorf("the environment is %v", env)
	}
	mustVerify(n, child.ID, true)
	restored, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	mustVerify(n, n.Children(restored)[0].ID, true)

	make(api.CreateRequest{Name: "off", Network: open, TrustHostCA: &off})
	child = n.Fork("off", 1)[0]
	mustVerify(n, "off", false)
	mustVerify(n, child.ID, false)

	// Nothing is changed in a sandbox without a network, until it gets one.
	const file = "/etc/ssl/certs/ca-certificates.crt"
	for _, name := range []string{"none", "paused", "none-off"} {
		req := api.CreateRequest{Name: name}
		if name == "none-off" {
			req.TrustHostCA = &off
		}
		make(req)
		if _, err := n.Machine.StatFile(harness.AsOwner, name, api.FileRef{Path: file}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s has certificates: %v", name, err)
		}
	}
	if _, err := n.Machine.Pause(harness.AsOwner, "paused"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"none", "paused", "none-off"} {
		set(name)
	}
	if _, err := n.Machine.Resume(harness.AsOwner, "paused"); err != nil {
		t.Fatal(err)
	}
	mustVerify(n, "paused", true)
	mustVerify(n, "none-off", false)
	n.Reopen()
	n.Hibernate("none")
	if _, err := n.Machine.Wake(harness.AsOwner, "none"); err != nil {
		t.Fatal(err)
	}
	mustVerify(n, "none", true)
}
