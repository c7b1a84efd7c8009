package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// keyHeader carries the variable KEY, if there is one.
const keyHeader = "X-Key"

func header() http.Header {
	h := http.Header{}
	if key := os.Getenv("KEY"); key != "" {
		h.Set(keyHeader, key)
	}
	return h
}

type webSocket struct {
	ctx  context.Context
	conn *websocket.Conn
}

func openWebSocket(ctx context.Context, url string) (stream, error) {
	c, res, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header(), HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("the server answers %s", res.Status)
	}
	return &webSocket{ctx, c}, nil
}

func (w *webSocket) send(b []byte) error {
	return w.conn.Write(w.ctx, websocket.MessageBinary, b)
}

func (w *webSocket) receive() ([]byte, error) {
	_, b, err := w.conn.Read(w.ctx)
	return b, err
}

func (w *webSocket) close() { _ = w.conn.CloseNow() } // it may be over

// http2 is a request whose body goes on while the answer comes.
type http2 struct {
	body   *io.PipeWriter
	answer io.ReadCloser
}

// newHTTP2 opens streams of one client, as programs keep one.
func newHTTP2(url string) opener {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: p, DialContext: dial}}
	return func(ctx context.Context) (stream, error) {
		r, w := io.Pipe()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, r)
		if err != nil {
			return nil, err
		}
		req.Header = header()
		res, err := c.Do(req)
		if err != nil {
			return nil, err
		}
		if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
			res.Body.Close()
			return nil, fmt.Errorf("the server answers %s %s", res.Proto, res.Status)
		}
		return &http2{w, res.Body}, nil
	}
}

func (h *http2) send(b []byte) error {
	_, err := h.body.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func (h *http2) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(h.answer, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(h.answer, b)
	return b, err
}

func (h *http2) close() {
	h.body.Close()
	h.answer.Close()
}

// newGRPC opens streams of one channel.
func newGRPC(url string) (opener, error) {
	u, err := neturl.Parse(url)
	if err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if u.Scheme == "https" {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	c, err := grpc.NewClient("dns:///"+u.Host, grpc.WithTransportCredentials(creds), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (stream, error) {
		if key := os.Getenv("KEY"); key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, keyHeader, key)
		}
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/ramet.test.Echo/Talk")
		return rpc{s}, err
	}, nil
}

type rpc struct{ s grpc.ClientStream }

func (r rpc) send(b []byte) error { return r.s.SendMsg(wrapperspb.Bytes(b)) }

func (r rpc) receive() ([]byte, error) {
	var m wrapperspb.BytesValue
	err := r.s.RecvMsg(&m)
	return m.GetValue(), err
}

func (r rpc) close() { _ = r.s.CloseSend() } // the stream ends with its context
