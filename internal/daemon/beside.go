package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// Beside is another interface to the same service, at an address of its own. Without certificates its
// clients are on this machine, or a proxy with TLS is: keys and tokens must not travel in the clear.
type Beside struct {
	// Name is that of the interface and of its option.
	Name string
	// Address is HOST:PORT; empty for nowhere.
	Address string
	// Certificate returns the certificate of a connection; nil for no TLS.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Open returns the handler of requests at an address, and what ends the work that it does by itself.
	Open func(svc service.Service, at net.Addr) (http.Handler, func(), error)
}

// besides serves another interface.
type besides struct {
	address string
	http    *http.Server
	close   func()
	done    chan struct{}
}

// open listens.
func (b Beside) open() (net.Listener, error) {
	host, _, err := net.SplitHostPort(b.Address)
	if err != nil {
		return nil, api.Invalid(b.Name, "%q is not HOST:PORT", b.Address)
	}
	if b.Certificate == nil && !isLoopback(host) {
		return nil, api.Invalid(b.Name, "%s can be reached from other machines, and keys must not travel in the clear: give --%s-domain, or listen on 127.0.0.1 and let a proxy with TLS pass requests on", b.Address, b.Name)
	}
	l, err := net.Listen("tcp", b.Address)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "listen on %s: %w", b.Address, err)
	}
	if b.Certificate != nil {
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: b.Certificate, NextProtos: []string{"h2", "http/1.1"}}), nil
	}
	if addr, ok := l.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		l.Close() // the name of a host led elsewhere
		return nil, api.Invalid(b.Name, "%s is %s, which is not this machine alone", b.Address, l.Addr())
	}
	return l, nil
}

// start listens, and serves until stop.
func (b Beside) start(svc service.Service, work context.Context, around func(http.Handler) http.Handler) (*besides, error) {
	l, err := b.open()
	if err != nil {
		return nil, err
	}
	handler, end, err := b.Open(svc, l.Addr())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", b.Name, err), l.Close())
	}
	if around != nil {
		handler = around(handler)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &besides{address: l.Addr().String(), close: end, done: make(chan struct{}), http: &http.Server{
		Handler: handler, Protocols: protocols, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return work },
	}}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // an error, that of being closed
	}()
	return s, nil
}

// stop ends requests that outlast a time, and waits.
func (s *besides) stop(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close() // streams go on as long as their clients do
	}
	<-s.done
	s.close()
	return err
}
