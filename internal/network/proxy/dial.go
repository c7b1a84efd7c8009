package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// maxProxyAnswer bounds the answer of a proxy to CONNECT.
const maxProxyAnswer = 64 << 10

// HostProxy is the proxy by which a host reaches names over TLS.
type HostProxy struct {
	of func(*url.URL) (*url.URL, error)
}

// NewHostProxy reads the values of HTTPS_PROXY and NO_PROXY. Without the first there is no proxy,
// and it returns nil.
func NewHostProxy(httpsProxy, noProxy string) (*HostProxy, error) {
	if httpsProxy == "" {
		return nil, nil
	}
	if !strings.Contains(httpsProxy, "://") {
		httpsProxy = "http://" + httpsProxy // as other programs take it
	}
	via, err := url.Parse(httpsProxy)
	if err != nil || via.Hostname() == "" {
		return nil, errors.New("HTTPS_PROXY is not the URL of a proxy") // the error has its password
	}
	if via.Scheme != "http" && via.Scheme != "https" {
		return nil, fmt.Errorf("HTTPS_PROXY: the scheme is %q: it can be http or https", via.Scheme)
	}
	c := httpproxy.Config{HTTPSProxy: httpsProxy, NoProxy: noProxy}
	return &HostProxy{c.ProxyFunc()}, nil
}

// Of returns the proxy for a name, or nil.
func (p *HostProxy) Of(name string, port uint16) *url.URL {
	if p == nil {
		return nil
	}
	via, err := p.of(&url.URL{Scheme: "https", Host: net.JoinHostPort(name, strconv.Itoa(int(port)))})
	if err != nil {
		return nil // NewHostProxy has refused such a URL
	}
	return via
}

// ViaProxy returns a function that connects to a name through an HTTP proxy: the proxy
// resolves the name, because many let nobody else do so. dial connects to the proxy.
func ViaProxy(proxy *url.URL, dial func(ctx context.Context, network, address string) (net.Conn, error), name string, port uint16) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (_ net.Conn, err error) {
		defer func() {
			if err != nil {
				err = fmt.Errorf("connect through the proxy %s: %w", proxy.Host, err)
			}
		}()
		proxyPort := proxy.Port()
		switch {
		case proxyPort != "":
		case proxy.Scheme == "https":
			proxyPort = "443"
		default:
			proxyPort = "80"
		}
		conn, err := dial(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), proxyPort))
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer func() {
			if !stop() && err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				conn.Close()
			}
		}()
		switch proxy.Scheme {
		case "http":
		case "https":
			t := tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
			if err := t.HandshakeContext(ctx); err != nil {
				return nil, err
			}
			conn = t
		default:
			return nil, fmt.Errorf("its scheme is %q: it can be http or https", proxy.Scheme)
		}
		return connect(conn, proxy.User, net.JoinHostPort(name, strconv.Itoa(int(port))))
	}
}

// connect asks a proxy for a tunnel.
func connect(conn net.Conn, user *url.Userinfo, target string) (net.Conn, error) {
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{"User-Agent": {""}}}
	if user != nil {
		password, _ := user.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: conn, N: maxProxyAnswer}
	b := bufio.NewReader(limited)
	res, err := http.ReadResponse(b, r)
	if err != nil {
		return nil, fmt.Errorf("its answer is none: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %d", res.StatusCode)
	}
	if b.Buffered() == 0 {
		return conn, nil
	}
	early, err := b.Peek(b.Buffered())
	if err != nil {
		return nil, err
	}
	return &earlyConn{conn, early}, nil
}

// earlyConn is a connection of which some has been read.
type earlyConn struct {
	net.Conn
	early []byte
}

// Read implements net.Conn.
func (c *earlyConn) Read(b []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.early)
	c.early = c.early[n:]
	return n, nil
}
