package ca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func newAuthority(t *testing.T, o Options) *Authority {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// shake makes a connection to a server with the leaf of name, for a client that trusts a.
func shake(t *testing.T, a *Authority, name string) error {
	t.Helper()
	leaf, err := a.Leaf(name)
	if err != nil {
		return err
	}
	client, server := net.Pipe()
	done := make(chan error, 1)
	go func() {
		s := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*leaf}})
		done <- s.Handshake()
		server.Close()
	}()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("the certificate is not one")
	}
	err = tls.Client(client, &tls.Config{RootCAs: roots, ServerName: name}).Handshake()
	client.Close()
	<-done
	return err
}

func TestLeaf(t *testing.T) {
	a := newAuthority(t, Options{Tree: "sbx_x"})
	if err := shake(t, a, "llm.example.com"); err != nil {
		t.Error(err)
	}
	again, err := Parse(must(t, a.Marshal))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Certificate(), a.Certificate()) {
		t.Error("an authority that was written and read has another certificate")
	}
	if err := shake(t, again, "other.example.com"); err != nil {
		t.Error(err)
	}
	first, err := a.Leaf("LLM.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := a.Leaf("llm.example.com"); err != nil || second != first {
		t.Errorf("a certificate was made twice: %v", err)
	}
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example.com"
	if err := shake(t, a, long); err != nil {
		t.Errorf("a long name: %v", err)
	}
}

func must(t *testing.T, f func() ([]byte, error)) []byte {
	t.Helper()
	b, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestConstraints(t *testing.T) {
	a := newAuthority(t, Options{Tree: "sbx_x", Names: []string{"llm.example.com"}})
	if err := shake(t, a, "llm.example.com"); err != nil {
		t.Error(err)
	}
	if _, err := a.Leaf("bank.example.com"); err == nil || !strings.Contains(err.Error(), "bank.example.com") {
		t.Errorf("a certificate of a name outside of the constraint: %v", err)
	}
}

func TestCacheIsBoundedAndRenews(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	a := newAuthority(t, Options{Tree: "sbx_x", Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	first, err := a.Leaf("n0.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxLeaves {
		if _, err := a.Leaf(fmt.Sprintf("n%d.example.com", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.leaves.Len(); n != maxLeaves {
		t.Errorf("%d certificates are kept, not %d", n, maxLeaves)
	}
	second, err := a.Leaf("n0.example.com")
	if err != nil || second == first {
		t.Errorf("the oldest certificate is kept beyond the bound: %v", err)
	}
	mu.Lock()
	now = now.Add(leafLife - renewBefore/2)
	mu.Unlock()
	third, err := a.Leaf("n0.example.com")
	if err != nil || third == second || !third.Leaf.NotAfter.After(now.Add(renewBefore)) {
		t.Errorf("a certificate that is about to expire is handed out: %v", err)
	}
}

func TestOneCertificateForManyConnections(t *testing.T) {
	a := newAuthority(t, Options{Tree: "sbx_x"})
	leaves := make([]*tls.Certificate, 16)
	var wg sync.WaitGroup
	for i := range leaves {
		wg.Go(func() {
			leaf, err := a.Leaf("x.example.com")
			if err != nil {
				t.Error(err)
			}
			leaves[i] = leaf
		})
	}
	wg.Wait()
	for _, l := range leaves {
		if l != leaves[0] {
			t.Error("connections at once made several certificates")
		}
	}
}

func TestParseRefuses(t *testing.T) {
	a, b := newAuthority(t, Options{Tree: "a"}), newAuthority(t, Options{Tree: "b"})
	text := must(t, a.Marshal)
	key := text[bytes.Index(text, []byte("-----BEGIN EC")):]
	leaf, err := a.Leaf("x.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nothing":         nil,
		"no PEM":          []byte("x"),
		"no key":          a.Certificate(),
		"no certificate":  key,
		"another's key":   append(b.Certificate(), key...),
		"other block":     pem.EncodeToMemory(&pem.Block{Type: "X"}),
		"bad certificate": pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: []byte("x")}),
		"a leaf":          append(pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: leaf.Certificate[0]}), key...),
	} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestKeyIsNotPrinted formats an authority in every way that logs do.
func TestKeyIsNotPrinted(t *testing.T) {
	a := newAuthority(t, Options{Tree: "sbx_x"})
	key, err := a.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	secret := new(big.Int).SetBytes(key).String()
	for _, text := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s", a, a, a, a), fmt.Sprintf("%+v", struct{ a *Authority }{a})} {
		if strings.Contains(text, secret) {
			t.Errorf("it prints as %s", text)
		}
	}
}

// TestOtherClients asks openssl, which checks constraints with code of its own.
func TestOtherClients(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not on this machine")
	}
	for _, names := range [][]string{nil, {"example.com"}} {
		a := newAuthority(t, Options{Tree: "sbx_x", Names: names})
		leaf, err := a.Leaf("api.example.com")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for file, text := range map[string][]byte{"ca.pem": a.Certificate(), "leaf.pem": pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: leaf.Certificate[0]})} {
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "api.example.com", "-CAfile", "ca.pem", "leaf.pem")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("constraints %v: %v: %s", names, err, out)
		}
	}
}
