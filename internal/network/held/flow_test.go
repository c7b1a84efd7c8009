package held

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/ca"
	"ramet.dev/ramet/internal/network/proxy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// throughProxy sends as a gateway does, with the secrets of a flow.
type throughProxy struct {
	proxy *proxy.Proxy
	flow  proxy.Flow
}

// Send implements Sender.
func (s *throughProxy) Send(ctx context.Context, r *Request, body io.Reader) (*http.Response, error) {
	req, err := r.HTTP(ctx, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	res, err := s.proxy.Upstream(s.flow).Once(req)
	if errors.Is(err, proxy.ErrNotSent) {
		err = fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return res, err
}

// TestFlow holds the write of a guest that speaks through a proxy: the server sees it once
// and only after the verdict, with the secret, which the disk never has.
func TestFlow(t *testing.T) {
	const name, value = "api.example.com", "sk-very-secret-0123456789"
	seen := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen <- fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made with "+r.Header.Get("Authorization"))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	authority, err := ca.New(ca.Options{Tree: "sbx_a"})
	if err != nil {
		t.Fatal(err)
	}
	placeholder := secrets.NewPlaceholder()
	rule, err := proxy.NewRule(name, api.NetworkTreatment{Hold: api.HoldWrites, Secret: &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}},
		[]proxy.Secret{{Name: "KEY", Value: secrets.NewValue(value), Placeholder: placeholder, Binding: secrets.Binding{Names: []string{name}, Header: "Authorization"}}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	p := proxy.New(proxy.Config{Roots: roots})
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	sender := &throughProxy{proxy: p, flow: proxy.Flow{
		Name: name, Port: 443, TLS: true, Authority: authority, Rule: func() *proxy.Rule { return rule },
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		},
	}}
	dir := filepath.Join(t.TempDir(), "held")
	q := openQueue(t, hostfs.OS, dir, sender, nil)
	flow := sender.flow
	flow.Effects = func(next http.RoundTripper) http.RoundTripper { return q.Transport(origin, time.Hour, Told{}, next) }

	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority.Certificate())
	served := make(chan error, 1)
	guest := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			front, back := net.Pipe()
			go func() { served <- p.Serve(t.Context(), back, flow) }()
			return front, nil
		},
	}}
	ask := func(method string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+name+"/v1/items", strings.NewReader("body"))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+placeholder)
		res, err := guest.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return fmt.Sprintf("%d %s", res.StatusCode, b), err
	}
	masked := "201 made with Bearer " + strings.Repeat("*", len(value))
	if got, err := ask("GET"); err != nil || got != masked || <-seen != "GET /v1/items Bearer "+value+" body" {
		t.Errorf("a read is answered %q, %v", got, err)
	}
	answer := make(chan string, 1)
	go func() {
		got, err := ask("POST")
		if err != nil {
			t.Error(err)
		}
		answer <- got
	}()
	polltest.Eventually(t, 10*time.Second, "one request waits", func() bool { return len(q.List("")) == 1 })
	for _, file := range files(t, dir) {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || bytes.Contains(text, []byte(value)) {
			t.Errorf("%s has the secret, or %v", file, err)
		}
	}
	if len(seen) > 0 {
		t.Error("the server has seen a write that is held")
	}
	if r, err := q.Release(t.Context(), q.List("")[0].ID, false); err != nil || r.State != Sent || r.Status != http.StatusCreated {
		t.Errorf("it is %+v, %v", r, err)
	}
	if got := <-answer; got != masked || <-seen != "POST /v1/items Bearer "+value+" body" || len(seen) > 0 {
		t.Errorf("a write is answered %q", got)
	}
	guest.CloseIdleConnections()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
