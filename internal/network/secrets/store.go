package secrets

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/httprule"
	"ramet.dev/ramet/internal/storage/hostfs"
)

const (
	identityFile = "identity.txt"
	secretsFile  = "secrets.age"

	// MaxValue bounds a value, in bytes: headers are not longer.
	MaxValue = 8 << 10
	// MaxSecrets bounds those of a tenant.
	MaxSecrets = 1000
	// maxFile bounds what is read: more was not written by this package.
	maxFile = 64 << 20
	// MaxBinding bounds the names, methods and paths of a binding, each.
	MaxBinding = 64

	formatVersion = 1
)

// Binding says which requests a secret is for.
type Binding struct {
	// Names are the names of servers: exact ones, in lower case; or Any for those of a policy.
	Names []string `json:"names"`
	// Header is the header that it is put into; or Any for those of a policy.
	Header string `json:"header"`
	// Methods and Paths are those of requests; none is all.
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Plain lets the secret pass without TLS.
	Plain bool `json:"plain,omitempty"`
}

// Any leaves it to a policy which servers get a secret, or in which header.
const Any = "*"

// Info is what is told of a secret: all but its value.
type Info struct {
	Name    string  `json:"name"`
	Binding Binding `json:"binding"`
	// Version counts the values that it has had.
	Version  int               `json:"version,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Created  time.Time         `json:"created"`
	Updated  time.Time         `json:"updated"`
}

// record is a secret as it is encrypted.
type record struct {
	Info
	Tenant string `json:"tenant"`
	Value  []byte `json:"value"`
}

// document is the whole file.
type document struct {
	Version int      `json:"version"`
	Secrets []record `json:"secrets"`
}

func (d *document) find(tenant, name string) int {
	return slices.IndexFunc(d.Secrets, func(r record) bool { return r.Tenant == tenant && r.Name == name })
}

// clear overwrites the values.
func (d *document) clear() {
	for _, r := range d.Secrets {
		clear(r.Value)
	}
}

// Store is a directory of secrets. It is safe for concurrent use; one process at a time may
// have the directory.
type Store struct {
	fs       hostfs.FS
	dir      string
	identity *age.X25519Identity
	now      func() time.Time

	// mu is held while the file is read or replaced.
	mu sync.Mutex
}

// Open reads the identity in a directory, and makes both if there are none.
func Open(files hostfs.FS, dir string) (*Store, error) {
	if err := files.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory of secrets: %w", err)
	}
	s := &Store{fs: files, dir: dir, now: time.Now}
	if err := s.loadIdentity(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, err := s.read() // a file that cannot be decrypted is told now, not when it is needed
	if err != nil {
		return nil, err
	}
	doc.clear()
	return s, nil
}

func (s *Store) loadIdentity() error {
	path := filepath.Join(s.dir, identityFile)
	text, err := s.readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.makeIdentity(path)
	}
	if err != nil {
		return fmt.Errorf("read identity of secrets: %w", err)
	}
	defer clear(text)
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		// The error of the parser has what it could not read.
		return api.Errorf(api.CodeCorrupt, "%s is not an identity of age", path)
	}
	if len(identities) == 1 {
		if x, ok := identities[0].(*age.X25519Identity); ok {
			s.identity = x
			return nil
		}
	}
	return api.Errorf(api.CodeCorrupt, "%s does not have one X25519 identity", path)
}

func (s *Store) makeIdentity(path string) error {
	switch f, err := s.fs.OpenFile(filepath.Join(s.dir, secretsFile), os.O_RDONLY, 0); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("make identity of secrets: %w", err)
	default:
		f.Close()
		return api.Errorf(api.CodeCorrupt, "%s is gone, and nothing else decrypts %s: bring it back, or remove the secrets and set them again", path, secretsFile)
	}
	x, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("make identity of secrets: %w", err)
	}
	if err := s.replaceFile(path, []byte(x.String()+"\n")); err != nil {
		return fmt.Errorf("write identity of secrets: %w", err)
	}
	s.identity = x
	return nil
}

func (s *Store) readFile(path string) ([]byte, error) {
	f, err := s.fs.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, api.Errorf(api.CodePermission, "others can read %s: chmod 600 it", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, api.Errorf(api.CodeCorrupt, "%s has more than %d bytes", path, maxFile)
	}
	return b, nil
}

// replaceFile makes a file with the text appear at path, or leaves what is there.
func (s *Store) replaceFile(path string, text []byte) error {
	return hostfs.Replace(s.fs, path, ".new-*", func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// read decrypts the file. Whoever calls it holds mu and clears the document.
func (s *Store) read() (*document, error) {
	text, err := s.readFile(filepath.Join(s.dir, secretsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &document{Version: formatVersion}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	plain, err := s.Unseal(text)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	defer clear(plain)
	var doc document
	if err := json.Unmarshal(plain, &doc); err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "read secrets: the file is not a document of secrets") // its error may have a part of a value
	}
	if doc.Version != formatVersion {
		return nil, api.Errorf(api.CodeUnsupported, "read secrets: the format is version %d, this program knows %d", doc.Version, formatVersion)
	}
	return &doc, nil
}

func (s *Store) write(doc *document) error {
	plain, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	defer clear(plain)
	sealed, err := s.Seal(plain)
	if err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	if err := s.replaceFile(filepath.Join(s.dir, secretsFile), sealed); err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	return nil
}

// Seal encrypts what Unseal decrypts. It is for other things that must not be readable on
// disk, such as the authorities of trees.
func (s *Store) Seal(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, s.identity.Recipient())
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return b.Bytes(), nil
}

// Unseal decrypts what Seal made.
func (s *Store) Unseal(sealed []byte) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), s.identity)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "decrypt: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "decrypt: %w", err)
	}
	return plain, nil
}

// Set makes a secret of a tenant or replaces it.
func (s *Store) Set(tenant, name string, v Value, b Binding, metadata map[string]string) error {
	if err := check(name, v, &b); err != nil {
		return err
	}
	if err := api.ValidMetadata("metadata", metadata); err != nil {
		return err
	}
	return s.change(func(doc *document) error { return s.put(doc, tenant, name, v, b, metadata) })
}

// put puts a checked secret into the document.
func (s *Store) put(doc *document, tenant, name string, v Value, b Binding, metadata map[string]string) error {
	now := s.now().UTC()
	r := record{Info{name, b, 1, metadata, now, now}, tenant, []byte(v.Reveal())}
	if i := doc.find(tenant, name); i >= 0 {
		r.Created, r.Version = doc.Secrets[i].Created, max(1, doc.Secrets[i].Version)+1
		clear(doc.Secrets[i].Value)
		doc.Secrets[i] = r
		return nil
	}
	if of(doc, tenant) >= MaxSecrets {
		return api.Errorf(api.CodeLimit, "there are %d secrets, which is the limit", MaxSecrets)
	}
	doc.Secrets = append(doc.Secrets, r)
	return nil
}

func of(doc *document, tenant string) int {
	n := 0
	for _, r := range doc.Secrets {
		if r.Tenant == tenant {
			n++
		}
	}
	return n
}

// Remove forgets a secret.
func (s *Store) Remove(tenant, name string) error {
	return s.change(func(doc *document) error {
		i := doc.find(tenant, name)
		if i < 0 {
			return notFound(name)
		}
		clear(doc.Secrets[i].Value)
		doc.Secrets = slices.Delete(doc.Secrets, i, i+1)
		return nil
	})
}

// change replaces the file by one with a change.
func (s *Store) change(edit func(*document) error) error {
	return s.view(func(doc *document) error {
		if err := edit(doc); err != nil {
			return err
		}
		return s.write(doc)
	})
}

// view calls use with the contents of the file, and clears them afterwards.
func (s *Store) view(use func(*document) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, err := s.read()
	if err != nil {
		return err
	}
	defer doc.clear()
	return use(doc)
}

// List returns the secrets of a tenant without their values, in the order of their names.
func (s *Store) List(tenant string) ([]Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, err := s.read()
	if err != nil {
		return nil, err
	}
	defer doc.clear()
	var list []Info
	for _, r := range doc.Secrets {
		if r.Tenant == tenant {
			list = append(list, r.Info)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Get returns a secret with its value, which the caller clears when it is no longer needed.
func (s *Store) Get(tenant, name string) (Info, Value, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, err := s.read()
	if err != nil {
		return Info{}, Value{}, err
	}
	defer doc.clear()
	i := doc.find(tenant, name)
	if i < 0 {
		return Info{}, Value{}, notFound(name)
	}
	return doc.Secrets[i].Info, valueOf(slices.Clone(doc.Secrets[i].Value)), nil
}

func notFound(name string) error {
	return api.Errorf(api.CodeNotFound, "there is no secret %q: ramet secret ls shows those that there are", name)
}

var (
	secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,128}$`)
	hostName   = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// framing are headers that say how a message is read or where it goes: a secret in one of
// them would be a way to change that.
var framing = []string{
	"Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// check says what is wrong with a secret, and puts its binding into its usual form.
func check(name string, v Value, b *Binding) error {
	if !secretName.MatchString(name) {
		return api.Invalid("name", "%q: a name has 1 to 64 letters, digits, underscores, dots and dashes, and begins with a letter or an underscore", name)
	}
	text := v.Reveal()
	switch {
	case text == "":
		return api.Invalid("value", "it is empty")
	case len(text) > MaxValue:
		return api.Invalid("value", "it has %d bytes: at most %d", len(text), MaxValue)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return api.Invalid("value", "it has a line break or another control character, which no header can have")
	case strings.TrimSpace(text) != text:
		return api.Invalid("value", "it begins or ends with a space, which no header keeps")
	}
	if len(b.Names) == 0 || len(b.Names) > MaxBinding || len(b.Methods) > MaxBinding || len(b.Paths) > MaxBinding {
		return api.Invalid("binding", "a secret is for 1 to %d names, and up to as many methods and paths", MaxBinding)
	}
	names := make([]string, len(b.Names))
	for i, n := range b.Names {
		names[i] = strings.TrimSuffix(strings.ToLower(n), ".")
		if names[i] == Any && len(names) == 1 {
			continue
		}
		if len(names[i]) > 253 || !hostName.MatchString(names[i]) {
			return api.Invalid("names", "%q is not the name of a server: it is exact, without a port", n)
		}
	}
	b.Names = names
	if !headerName.MatchString(b.Header) || slices.ContainsFunc(framing, func(h string) bool { return strings.EqualFold(h, b.Header) }) {
		return api.Invalid("header", "%q is not a header that a secret can be in", b.Header)
	}
	if _, err := httprule.ParseMethods(b.Methods); err != nil {
		return api.Invalid("methods", "%v", err)
	}
	if _, err := httprule.ParsePaths(b.Paths); err != nil {
		return api.Invalid("paths", "%v", err)
	}
	return nil
}
