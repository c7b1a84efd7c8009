package truststore

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
)

const (
	// maxFile bounds a file of the guest that is read.
	maxFile = 16 << 20
	// mainBundle is the one that variables name.
	mainBundle = "etc/ssl/certs/ca-certificates.crt"

	certificateType = "CERTIFICATE"
)

// bundles are the files in which distributions keep all certificates that they trust.
var bundles = []string{
	mainBundle,                        // Debian, Alpine, Arch, and links of others
	"etc/ssl/cert.pem",                // Alpine, OpenSSL's own default there
	"etc/ssl/ca-bundle.pem",           // SUSE
	"etc/pki/tls/certs/ca-bundle.crt", // Fedora
	"etc/pki/tls/cert.pem",            // Fedora, OpenSSL's own default there
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
}

// sources are directories from which a guest makes its bundles again when it updates them.
var sources = []string{"usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors", "etc/ca-certificates/trust-source/anchors"}

// variables name the main bundle. Each is that of a program or library that does not look
// at the bundles of the system: it has its own.
var variables = []string{
	"SSL_CERT_FILE",       // OpenSSL, Go, Ruby
	"CURL_CA_BUNDLE",      // curl where it was built with a bundle of its own
	"REQUESTS_CA_BUNDLE",  // Python's requests
	"PIP_CERT",            // pip
	"NODE_EXTRA_CA_CERTS", // Node
	"CARGO_HTTP_CAINFO",   // cargo
	"GIT_SSL_CAINFO",      // git
	"AWS_CA_BUNDLE",       // the clients of AWS
	"DENO_CERT",           // Deno
}

// Variables returns the variables that plans set, and MainBundle what to.
func Variables() []string { return slices.Clone(variables) }

// MainBundle returns the path of the bundle in which all is that programs are to trust.
func MainBundle() string { return "/" + mainBundle }

// Request says what a guest is to trust.
type Request struct {
	// Trusted are certificates in PEM.
	Trusted []byte
	// Roots is the bundle for a guest that has none, in PEM.
	Roots []byte
}

// File is a file to write in the guest, for root and readable by all.
type File struct {
	Path    string // absolute
	Content []byte
}

// Plan is what to do in a guest.
type Plan struct {
	Files []File
	// Env are variables to set, of those that the guest has not set itself.
	Env map[string]string
	// Problems are stores that were found and cannot be changed. The programs that use them
	// do not trust the certificates.
	Problems []string
}

// Make looks at the files of a guest. guest resolves symbolic links as the guest does.
func Make(guest fs.FS, r Request) (*Plan, error) {
	trusted, err := parse(r.Trusted)
	if err != nil {
		return nil, fmt.Errorf("read certificates to trust: %w", err)
	}
	p := &planner{guest: guest, trusted: trusted, plan: &Plan{Env: map[string]string{}}}
	if err := p.bundles(r.Roots); err != nil {
		return nil, err
	}
	if err := p.sources(); err != nil {
		return nil, err
	}
	if err := p.hashes(); err != nil {
		return nil, err
	}
	if err := p.java(); err != nil {
		return nil, err
	}
	for _, name := range variables {
		p.plan.Env[name] = MainBundle()
	}
	return p.plan, nil
}

// planner makes a plan.
type planner struct {
	guest   fs.FS
	trusted []*x509.Certificate
	plan    *Plan
}

func (p *planner) write(name string, content []byte) {
	p.plan.Files = append(p.plan.Files, File{"/" + name, content})
}

func (p *planner) problem(format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, fmt.Sprintf(format, args...))
}

// read returns a file of the guest, or nil if there is none.
func (p *planner) read(name string) ([]byte, error) {
	f, err := p.guest.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read /%s of the guest: %w", name, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read /%s of the guest: %w", name, err)
	}
	if !st.Mode().IsRegular() {
		p.problem("/%s is not a file", name)
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read /%s of the guest: %w", name, err)
	}
	if len(b) > maxFile {
		p.problem("/%s has more than %d bytes", name, maxFile)
		return nil, nil
	}
	return b, nil
}

// list returns the names in a directory of the guest, none if there is no such directory.
func (p *planner) list(name string) ([]string, error) {
	entries, err := fs.ReadDir(p.guest, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		if st, serr := fs.Stat(p.guest, name); serr == nil && !st.IsDir() {
			return nil, nil
		}
		return nil, fmt.Errorf("read /%s of the guest: %w", name, err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// bundles appends the certificates to each bundle.
func (p *planner) bundles(roots []byte) error {
	for _, name := range bundles {
		text, err := p.read(name)
		if err != nil {
			return err
		}
		if text == nil && name == mainBundle {
			// Variables name it, so it must have what the guest trusted without them too.
			if text, err = p.firstBundle(roots); err != nil {
				return err
			}
			p.write(name, with(text, p.trusted))
			continue
		}
		if text == nil {
			continue
		}
		if next := with(text, p.trusted); len(next) > len(text) {
			p.write(name, next)
		}
	}
	return nil
}

// Bundle returns the bundle of a guest, nil if it has none.
func Bundle(guest fs.FS) ([]byte, error) {
	p := &planner{guest: guest, plan: &Plan{}}
	if text, err := p.read(mainBundle); err != nil || text != nil {
		return text, err
	}
	return p.firstBundle(nil)
}

// firstBundle returns the bundle of a guest that does not have the main one.
func (p *planner) firstBundle(roots []byte) ([]byte, error) {
	for _, name := range bundles[1:] {
		if text, err := p.read(name); err != nil || text != nil {
			return text, err
		}
	}
	return bytes.Clone(roots), nil
}

// sources writes a file for each certificate, as those who update bundles want it.
func (p *planner) sources() error {
	for _, dir := range sources {
		st, err := fs.Stat(p.guest, dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
			continue
		}
		if err != nil {
			return fmt.Errorf("read /%s of the guest: %w", dir, err)
		}
		for _, c := range p.trusted {
			if err := p.writeNew(path.Join(dir, "ramet-"+fingerprint(c)+".crt"), encode(c)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeNew writes a file unless it is there as it would be.
func (p *planner) writeNew(name string, content []byte) error {
	old, err := p.read(name)
	if err == nil && !bytes.Equal(old, content) {
		p.write(name, content)
	}
	return err
}

// parse reads all certificates of a bundle.
func parse(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("it is not PEM")
		}
		text = rest
		if block.Type != certificateType {
			return nil, fmt.Errorf("it has a block %q", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	return certs, nil
}

// with appends those of certs to a bundle that it does not have.
func with(text []byte, certs []*x509.Certificate) []byte {
	has := inBundle(text)
	next := bytes.Clone(text)
	for _, c := range certs {
		if has[string(c.Raw)] {
			continue
		}
		if len(next) > 0 && next[len(next)-1] != '\n' {
			next = append(next, '\n')
		}
		next = append(next, encode(c)...)
	}
	return next
}

// inBundle returns the certificates of a bundle, which may have anything else besides.
func inBundle(text []byte) map[string]bool {
	has := map[string]bool{}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return has
		}
		has[string(block.Bytes)] = true
		text = rest
	}
}

// Count returns how many blocks of PEM a bundle has.
func Count(text []byte) (n int) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return n
		}
		text = rest
		n++
	}
}

// HostBundles are the files in which distributions keep the certificates that a host trusts. The
// first that is there counts, as with Go's own programs.
func HostBundles() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora
		"/etc/ssl/cert.pem",                                 // Alpine
	}
}

// Missing returns the authorities of one bundle that another one lacks, in PEM: those of a
// host that an image lacks. What is not a valid authority is left out.
func Missing(host, image []byte) []byte {
	has := inBundle(image)
	var missing []byte
	for {
		block, rest := pem.Decode(host)
		if block == nil {
			return missing
		}
		host = rest
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != certificateType || err != nil || !c.IsCA || has[string(c.Raw)] {
			continue
		}
		has[string(c.Raw)] = true
		missing = append(missing, encode(c)...)
	}
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: c.Raw})
}
