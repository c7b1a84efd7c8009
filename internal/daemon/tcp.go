package daemon

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/portproxy"
)

// Listen is the address that a daemon listens on besides its socket. Clients there need
// a token.
type Listen struct {
	// Address is HOST:PORT; empty for nowhere.
	Address string
	// CertFile and KeyFile are PEM files. They are read again when they change.
	CertFile, KeyFile string
	// PortDomain is what the hosts of ports end with, DOMAIN or DOMAIN:PORT. If it is
	// empty, they are below localhost, which is for browsers on this machine.
	PortDomain string
}

// check returns an error if the options contradict each other. Tokens must not travel in the clear, so
// beyond this machine it needs a certificate.
func (l Listen) check() error {
	if l.Address == "" {
		if l.CertFile+l.KeyFile+l.PortDomain != "" {
			return api.Invalid("listen", "a certificate and a domain of ports are of no use at the socket: give --listen HOST:PORT")
		}
		return nil
	}
	if (l.CertFile == "") != (l.KeyFile == "") {
		return api.Invalid("tls-cert", "a certificate and its key belong together: give --tls-cert and --tls-key, or neither")
	}
	host, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return api.Invalid("listen", "%q is not HOST:PORT", l.Address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return api.Invalid("listen", "port %q of %q is not from 0 to 65535", port, l.Address)
	}
	if l.PortDomain != "" {
		if _, err := portproxy.ParseHosts(l.PortDomain, l.CertFile != "", ""); err != nil {
			return err
		}
	}
	if l.CertFile == "" && !isLoopback(host) {
		return api.Invalid("listen", "%s can be reached from other machines, and tokens must not travel in the clear: give --tls-cert and --tls-key, or listen on 127.0.0.1 and let a proxy with TLS pass requests on", l.Address)
	}
	return nil
}

// open listens where check allows it.
func (l Listen) open() (net.Listener, error) {
	secure := l.CertFile != ""
	var config *tls.Config
	if secure {
		get, err := Certificate(l.CertFile, l.KeyFile)
		if err != nil {
			return nil, err
		}
		// Connections are taken over for WebSockets and ports, which HTTP/2 has no
		// way for.
		config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get, NextProtos: []string{"http/1.1"}}
	}
	tcp, err := net.Listen("tcp", l.Address)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "listen on %s: %w", l.Address, err)
	}
	if addr, ok := tcp.Addr().(*net.TCPAddr); !secure && (!ok || !addr.IP.IsLoopback()) {
		tcp.Close() // the name of a host led elsewhere
		return nil, api.Invalid("listen", "%s is %s, which is not this machine alone: give --tls-cert and --tls-key", l.Address, tcp.Addr())
	}
	if config != nil {
		return tls.NewListener(tcp, config), nil
	}
	return tcp, nil
}

// portHosts returns the hosts of ports that lead to a listener of open.
func (l Listen) portHosts(at net.Addr) (portproxy.Hosts, error) {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return portproxy.Hosts{}, fmt.Errorf("name hosts of ports: %w", err)
	}
	switch secure := l.CertFile != ""; {
	case l.PortDomain != "":
		return portproxy.ParseHosts(l.PortDomain, secure, port)
	case isLoopback(host):
		return portproxy.ParseHosts("localhost", secure, port)
	}
	return portproxy.Hosts{}, nil // those who come from elsewhere would find themselves at localhost
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Certificate returns the certificate in PEM files, for tls.Config.GetCertificate. They are read again
// when they have changed.
func Certificate(certFile, keyFile string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	pair := &keyPair{certFile: certFile, keyFile: keyFile}
	if _, err := pair.get(nil); err != nil {
		return nil, err
	}
	return pair.get, nil
}

// keyPair is a certificate that is read again when its file has changed: those who
// renew certificates do not know of daemons.
type keyPair struct {
	certFile, keyFile string

	mu   sync.Mutex
	cert *tls.Certificate
	at   time.Time // when the file was written
}

// get implements tls.Config.GetCertificate. A file that is being replaced leaves
// the old certificate in use.
func (k *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fi, err := os.Stat(k.certFile)
	if err == nil && k.cert != nil && fi.ModTime().Equal(k.at) {
		return k.cert, nil
	}
	if err == nil {
		var cert tls.Certificate
		if cert, err = tls.LoadX509KeyPair(k.certFile, k.keyFile); err == nil {
			k.cert, k.at = &cert, fi.ModTime()
		}
	}
	if k.cert == nil {
		return nil, fmt.Errorf("read certificate: %w", api.Invalid("tls-cert", "%v", err))
	}
	return k.cert, nil
}
