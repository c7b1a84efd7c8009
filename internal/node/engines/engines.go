package engines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Program describes a program that is kept.
type Program struct {
	// Name is the engine's, and Build the part of it that sentries report.
	Name  string `json:"name"`
	Build string `json:"build"`
	// Digest is that of the program.
	Digest string `json:"digest,omitempty"`
}

// document returns the name of the file that describes p: two engines may have one program.
func (p *Program) document() string {
	sum := sha256.Sum256([]byte(p.Name))
	return hex.EncodeToString(sum[:8]) + ".json"
}

// Config is what Engines work with.
type Config struct {
	// Dir is the directory of the programs; empty to keep none.
	Dir string
	// Own is the engine of this daemon, and Executable its program.
	Own        Program
	Executable string
	// Launch is how launchers of other engines start sentries, but for the program.
	Launch launch.Config
	Log    *slog.Logger
	// FS is nil for the host's file system.
	FS hostfs.FS
}

// Engines is the engine of this daemon and those that are kept. It is safe for concurrent
// use.
type Engines struct {
	cfg Config

	own func() (string, error) // digest of the own program

	mu     sync.Mutex
	kept   map[string]Program // by name
	opened map[string]*opened
	closed bool
}

// opened is an engine that sentries are started of.
type opened struct {
	program  *os.File
	launcher *launch.Launcher
}

// Open reads which programs are kept.
func Open(cfg Config) (*Engines, error) {
	if cfg.FS == nil {
		cfg.FS = hostfs.OS
	}
	e := &Engines{cfg: cfg, kept: map[string]Program{}, opened: map[string]*opened{}}
	e.own = sync.OnceValues(func() (string, error) { return digestOf(cfg.Executable) })
	if cfg.Dir == "" {
		return e, nil
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of engines: %w", err)
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list engines: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		p, err := e.read(entry.Name())
		if err != nil {
			cfg.Log.Warn("read an engine", "file", entry.Name(), "error", err)
			continue
		}
		e.kept[p.Name] = p
	}
	return e, nil
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (e *Engines) path(name string) string { return filepath.Join(e.cfg.Dir, name) }

func (e *Engines) read(document string) (p Program, err error) {
	b, err := os.ReadFile(e.path(document))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, err
	}
	if p.document() != document || !digestForm.MatchString(p.Digest) {
		return p, errors.New("it is of another engine")
	}
	if _, err := os.Stat(e.path(p.Digest)); err != nil {
		return p, err
	}
	return p, nil
}

// Own names the engine of this daemon.
func (e *Engines) Own() string { return e.cfg.Own.Name }

// Knows reports whether sentries of an engine can be started. The empty name is that of
// records of versions that kept none.
func (e *Engines) Knows(name string) bool {
	if name == "" || name == e.cfg.Own.Name {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept[name].Name != ""
}

// Describe returns the program of an engine with its digest, and opens it.
func (e *Engines) Describe(name string) (Program, *os.File, error) {
	p, path := e.cfg.Own, e.cfg.Executable
	if name != "" && name != e.cfg.Own.Name {
		e.mu.Lock()
		p = e.kept[name]
		e.mu.Unlock()
		path = e.path(p.Digest)
	}
	digest, err := e.Digest(name)
	if err != nil {
		return p, nil, err
	}
	p.Digest = digest
	f, err := os.Open(path)
	return p, f, err
}

// Add keeps the program of another engine, which fill writes and which must have the digest
// of p. It is executed as this daemon's own is, so its caller must trust where it is from.
func (e *Engines) Add(p Program, fill func(io.Writer) error) error {
	e.mu.Lock()
	has := p.Name == e.cfg.Own.Name || e.kept[p.Name].Name != ""
	e.mu.Unlock()
	switch {
	case e.cfg.Dir == "":
		return api.Errorf(api.CodeUnsupported, "this daemon keeps no engines")
	case has:
		return nil
	case !digestForm.MatchString(p.Digest):
		return api.Invalid("digest", "%q is none", p.Digest)
	}
	hash := sha256.New()
	err := hostfs.Replace(e.cfg.FS, e.path(p.Digest), tempPrefix, func(w io.Writer) error {
		if err := fill(io.MultiWriter(w, hash)); err != nil {
			return err
		}
		if hex.EncodeToString(hash.Sum(nil)) != p.Digest {
			return api.Errorf(api.CodeCorrupt, "the engine does not match its digest %s", p.Digest)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kept[p.Name].Name != "" {
		return nil // another caller was quicker
	}
	if err := e.describe(&p); err != nil {
		return err
	}
	e.kept[p.Name] = p
	return nil
}

// describe writes the document of a program.
func (e *Engines) describe(p *Program) error {
	return hostfs.Replace(e.cfg.FS, e.path(p.document()), tempPrefix, func(w io.Writer) error { return json.NewEncoder(w).Encode(p) })
}

// Digest returns the SHA-256 of the program of an engine, in hexadecimal.
func (e *Engines) Digest(name string) (string, error) {
	if name == "" || name == e.cfg.Own.Name {
		return e.own()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.kept[name]; p.Name != "" {
		return p.Digest, nil
	}
	return "", api.Errorf(api.CodeUnsupported, "engine %q is not kept here: use the ramet that has it", name)
}

// Keep copies the program of this daemon to the directory, unless it is there.
func (e *Engines) Keep() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cfg.Dir == "" || e.kept[e.cfg.Own.Name].Name != "" {
		return nil
	}
	p, err := e.copy()
	if err != nil {
		return fmt.Errorf("keep the engine: %w", err)
	}
	e.kept[p.Name] = p
	return nil
}

// copy copies the own program. The document comes last: a program without one is swept.
func (e *Engines) copy() (p Program, err error) {
	p = e.cfg.Own
	if p.Digest, err = e.own(); err != nil {
		return p, err
	}
	from, err := os.Open(e.cfg.Executable)
	if err != nil {
		return p, err
	}
	defer from.Close()
	err = hostfs.Replace(e.cfg.FS, e.path(p.Digest), tempPrefix, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
	if err != nil {
		return p, err
	}
	return p, e.describe(&p)
}

// digestOf returns the digest of a program.
func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// tempPrefix begins the names of files that are being written.
const tempPrefix = ".tmp-"

// Sweep removes the programs that nothing needs, and what a crash left. The own program
// stays once it is kept.
func (e *Engines) Sweep(needed func(name string) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cfg.Dir == "" {
		return nil
	}
	for name := range e.kept {
		if name != e.cfg.Own.Name && !needed(name) {
			delete(e.kept, name)
		}
	}
	stays := map[string]bool{}
	for _, p := range e.kept {
		stays[p.Digest], stays[p.document()] = true, true
	}
	entries, err := os.ReadDir(e.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list engines: %w", err)
	}
	for _, entry := range entries {
		if stays[entry.Name()] {
			continue
		}
		if err := e.cfg.FS.Remove(e.path(entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an engine: %w", err)
		}
	}
	return nil
}

// Launcher returns what starts sentries of an engine that is not this daemon's.
func (e *Engines) Launcher(ctx context.Context, name string) (*launch.Launcher, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.opened[name]; o != nil {
		return o.launcher, nil
	}
	p := e.kept[name]
	switch {
	case e.closed:
		return nil, api.Errorf(api.CodeUnavailable, "the daemon is about to end: ask again")
	case p.Name == "":
		return nil, api.Errorf(api.CodeUnsupported, "engine %q is not kept here: use the ramet that has it", name)
	}
	o, err := e.open(ctx, &p)
	if err != nil {
		return nil, fmt.Errorf("start engine %q: %w", name, err)
	}
	e.opened[name] = o
	return o.launcher, nil
}

// lowestFD keeps a program away from the numbers under which a child is given its own
// descriptors, which happens before it executes the program.
const lowestFD = 64

func (e *Engines) open(ctx context.Context, p *Program) (_ *opened, err error) {
	program, err := e.sealed(p.Digest)
	if err != nil {
		return nil, err
	}
	cfg := e.cfg.Launch
	cfg.Executable, cfg.BuildID, cfg.Zygote = fmt.Sprintf("/proc/self/fd/%d", program.Fd()), p.Build, "zygote-"+strings.TrimSuffix(p.document(), ".json")
	l, err := launch.New(ctx, cfg)
	if err != nil {
		program.Close()
		return nil, err
	}
	return &opened{program, l}, nil
}

// sealed copies a program to a sealed file in memory, which other users can execute, and
// compares it with its digest.
func (e *Engines) sealed(digest string) (_ *os.File, err error) {
	from, err := os.Open(e.path(digest))
	if err != nil {
		return nil, err
	}
	defer from.Close()
	file, err := launch.NewFile("ramet-sentry")
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	if _, err = io.Copy(io.MultiWriter(file, hash), from); err == nil && hex.EncodeToString(hash.Sum(nil)) != digest {
		err = api.Errorf(api.CodeCorrupt, "the program does not match its digest %s", digest)
	}
	sealed := file
	if err == nil {
		sealed, err = launch.Seal(file)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	defer sealed.Close()
	high, err := unix.FcntlInt(sealed.Fd(), unix.F_DUPFD_CLOEXEC, lowestFD)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(high), "ramet-sentry"), nil
}

// Close ends the launchers. Sentries go on.
func (e *Engines) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for name, o := range e.opened {
		o.launcher.Close()
		o.program.Close()
		delete(e.opened, name)
	}
}
