package network

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"ramet.dev/ramet/test/harness"
)

// authority signs for servers, and writes its certificate into a file.
func authority(t *testing.T, names ...string) (bundle string, config *tls.Config) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the host"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: names,
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
	return bundle, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// answerer answers in all the ways that the program talker asks, and notes each request.
type answerer struct {
	*grpc.Server
	events chan struct{} // closed when the last event is there

	mu      sync.Mutex
	asked   []string // "HTTP/1.1 GET /path key"; guarded by mu
	waiting int      // for the last event; guarded by mu
}

// latency is the time between a message and its answer, so that some are always under way.
const latency = 50 * time.Millisecond

func newAnswerer() *answerer {
	s := &answerer{Server: grpc.NewServer(), events: make(chan struct{})}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "ramet.test.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Talk", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			return answer(func() ([]byte, error) {
				var m wrapperspb.BytesValue
				err := stream.RecvMsg(&m)
				return m.GetValue(), err
			}, func(b []byte) error { return stream.SendMsg(wrapperspb.Bytes(b)) })
		},
	}}}, nil)
	return s
}

// answer sends back what it receives, some time later, until the last message.
func answer(receive func() ([]byte, error), send func([]byte) error) error {
	type late struct {
		b  []byte
		at time.Time
	}
	queue, sent := make(chan late, 64), make(chan error, 1)
	go func() {
		var err error
		for m := range queue {
			<-time.After(time.Until(m.at))
			if err == nil {
				err = send(m.b)
			}
		}
		sent <- err
	}()
	var err error
	for last := false; !last && err == nil; {
		var b []byte
		if b, err = receive(); err == nil {
			queue <- late{b, time.Now().Add(latency)}
			last = strings.HasPrefix(string(b), "end ")
		}
	}
	close(queue)
	return errors.Join(err, <-sent)
}

// seen returns what it was asked.
func (s *answerer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// ServeHTTP implements http.Handler.
func (s *answerer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, strings.Join([]string{r.Proto, r.Method, r.URL.Path, r.Header.Get("X-Key")}, " "))
	s.mu.Unlock()
	var err error
	switch {
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		s.Server.ServeHTTP(w, r)
	case r.URL.Path == "/websocket":
		err = s.webSocket(w, r)
	case r.URL.Path == "/http2":
		err = s.stream(w, r)
	case r.URL.Path == "/poll":
		err = s.poll(w, r)
	default:
		_, err = fmt.Fprint(w, r.Method, " ", r.Header.Get("X-Key"))
	}
	_ = err // the guest sees it
}

func (s *answerer) webSocket(w http.ResponseWriter, r *http.Request) error {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return err
	}
	defer c.CloseNow()
	ctx := context.WithoutCancel(r.Context())
	return answer(func() ([]byte, error) {
		_, b, err := c.Read(ctx)
		return b, err
	}, func(b []byte) error { return c.Write(ctx, websocket.MessageBinary, b) })
}

func (s *answerer) stream(w http.ResponseWriter, r *http.Request) error {
	flush := http.NewResponseController(w).Flush
	if err := flush(); err != nil {
		return err
	}
	return answer(func() ([]byte, error) {
		var size [4]byte
		if _, err := io.ReadFull(r.Body, size[:]); err != nil {
			return nil, err
		}
		b := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<20))
		_, err := io.ReadFull(r.Body, b)
		return b, err
	}, func(b []byte) error {
		_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
		return errors.Join(err, flush())
	})
}

// poll has one event at once, and the last when it comes.
func (s *answerer) poll(w http.ResponseWriter, r *http.Request) error {
	next, err := strconv.Atoi(r.FormValue("next"))
	if err == nil && next == 0 {
		_, err = io.WriteString(w, "more flowing")
		return err
	}
	s.count(1)
	defer s.count(-1)
	select {
	case <-s.events:
		_, err = io.WriteString(w, "whole")
	case <-r.Context().Done():
	}
	return err
}

func (s *answerer) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
}

// listen serves at an address, in TLS if config is not nil.
func (s *answerer) listen(t *testing.T, address string, config *tls.Config) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: s, Protocols: p, TLSConfig: config.Clone(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() {
		if config != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	t.Cleanup(func() { server.Close(); <-served })
}
