package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/daemon"
	"ramet.dev/ramet/internal/network/ca"
	"ramet.dev/ramet/internal/server/e2b"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/paths"
)

// besideE2B returns the interface for clients of E2B; the zero value if it is not asked for.
func besideE2B(p paths.Paths, opts cli.ServeOptions, log *slog.Logger) (daemon.Beside, error) {
	b := daemon.Beside{Name: "e2b", Address: opts.E2B}
	if opts.E2B == "" {
		if opts.E2BDomain != "" {
			return b, api.Invalid("e2b-domain", "it is of no use without --e2b")
		}
		return b, nil
	}
	domain, port := "localhost", ""
	if opts.E2BDomain != "" {
		var err error
		if domain, port, err = portproxy.ParseDomain("e2b-domain", opts.E2BDomain); err != nil {
			return b, err
		}
		if b.Certificate, err = certificateE2B(p, opts, domain); err != nil {
			return b, err
		}
	}
	b.Open = func(svc service.Service, at net.Addr) (http.Handler, func(), error) {
		key, err := grant.Key(p.E2BKey())
		if err != nil {
			return nil, nil, err
		}
		if port == "" {
			if _, port, err = net.SplitHostPort(at.String()); err != nil {
				return nil, nil, err
			}
		}
		hosts := domain
		if b.Certificate == nil || port != "443" {
			hosts += ":" + port
		}
		s, err := e2b.New(e2b.Config{Service: svc, Key: key, Dir: p.E2BFiles(), Domain: hosts, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	return b, nil
}

// certificateE2B returns the certificate for a domain and the names below it: that of the options, or one
// of the daemon's own authority.
func certificateE2B(p paths.Paths, opts cli.ServeOptions, domain string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if opts.CertFile != "" || opts.KeyFile != "" {
		if opts.CertFile == "" || opts.KeyFile == "" {
			return nil, api.Invalid("tls-cert", "a certificate and its key belong together: give --tls-cert and --tls-key, or neither")
		}
		return daemon.Certificate(opts.CertFile, opts.KeyFile)
	}
	authority, err := authorityE2B(p)
	if err != nil {
		return nil, err
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := strings.ToLower(hello.ServerName)
		if name == "" {
			name = domain
		}
		if name != domain && !strings.HasSuffix(name, "."+domain) {
			return nil, fmt.Errorf("%q is not below %s", name, domain)
		}
		return authority.Leaf(name)
	}, nil
}

// authorityE2B reads the authority for clients of E2B, and makes it if there is none. Its certificate is in
// a file of its own, for clients.
func authorityE2B(p paths.Paths) (*ca.Authority, error) {
	if err := p.MakeData(); err != nil {
		return nil, err
	}
	var authority *ca.Authority
	text, err := os.ReadFile(p.E2BAuthority())
	switch {
	case err == nil:
		if authority, err = ca.Parse(text); err != nil {
			err = api.Errorf(api.CodeCorrupt, "%s: %w: remove it, and clients have to trust another one", p.E2BAuthority(), err)
		}
	case errors.Is(err, fs.ErrNotExist):
		if authority, err = ca.New(ca.Options{Tree: "clients of E2B"}); err != nil {
			break
		}
		if text, err = authority.Marshal(); err == nil {
			err = replace(p.E2BAuthority(), text)
		}
	}
	if err == nil {
		err = replace(p.E2BCertificate(), authority.Certificate())
	}
	if err != nil {
		return nil, fmt.Errorf("open the authority for clients of E2B: %w", err)
	}
	return authority, nil
}

// replace writes a file that only the user can read.
func replace(path string, text []byte) error {
	return hostfs.Replace(hostfs.OS, path, ".new-*", func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
