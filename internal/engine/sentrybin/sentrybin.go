package sentrybin

import (
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	sentry  = dir + "/ramet-sentry"
	command = dir + "/ramet-guest"
	gateway = dir + "/ramet-gateway"
	// lowestFD keeps the file away from the numbers that a child is given its
	// own descriptors under, which happens before it executes Path.
	lowestFD = 64
)

// ErrMissing says that this program was built without its sentry.
var ErrMissing = errors.New("this program was built without the sentry in it: build it with make build")

// Program is the embedded program, ready to be started.
type Program struct {
	file *os.File
	// Engine names the gVisor that is linked into the sentry.
	Engine string
	// Build is different for each build of the gateway.
	Build string
}

// Open copies the program to a sealed file in memory. It returns ErrMissing if
// there is none.
func Open() (*Program, error) {
	src, err := files.Open(sentry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("open sentry program: %w", err)
	}
	defer src.Close()
	engine, err := engineOf(src.(io.ReaderAt)) // as package embed documents
	if err != nil {
		return nil, err
	}
	file, err := sealed("ramet-sentry", src)
	if err != nil {
		return nil, err
	}
	return &Program{file: file, Engine: engine}, nil
}

// OpenCommand copies the command that goes into sandboxes to a sealed file in
// memory. It returns ErrMissing if there is none.
func OpenCommand() (*os.File, error) {
	src, err := files.Open(command)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("open command: %w", err)
	}
	defer src.Close()
	return sealed("ramet-guest", src)
}

// OpenGateway copies the program that opens the connections of sandboxes to a sealed file in
// memory, whose Build tells it from others. It returns ErrMissing if there is none.
func OpenGateway() (*Program, error) {
	src, err := files.Open(gateway)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, fmt.Errorf("open gateway program: %w", err)
	}
	defer src.Close()
	build, err := buildOf(src.(io.ReaderAt))
	if err != nil {
		return nil, err
	}
	file, err := sealed("ramet-gateway", src)
	if err != nil {
		return nil, err
	}
	return &Program{file: file, Build: build}, nil
}

// sealed copies src to a file in memory that cannot be changed.
func sealed(name string, src io.Reader) (_ *os.File, err error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory file for %s: %w", name, err)
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowestFD)
	unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("move memory file of %s: %w", name, err)
	}
	file := os.NewFile(uintptr(high), name)
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if _, err := io.Copy(file, src); err != nil {
		return nil, fmt.Errorf("copy %s: %w", name, err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	return file, nil
}

// Path returns the path to execute. It is valid in children of this process until Close.
func (p *Program) Path() string { return fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()) }

// Close gives up the file. Programs that run keep it.
func (p *Program) Close() error { return p.file.Close() }

// buildOf returns the identifier that the linker gave the program, which is that of its contents.
func buildOf(program io.ReaderAt) (string, error) {
	f, err := elf.NewFile(program)
	if err != nil {
		return "", fmt.Errorf("read gateway program: %w", err)
	}
	defer f.Close()
	note := f.Section(".note.go.buildid")
	if note == nil {
		return "", errors.New("read gateway program: it has no identifier of its build")
	}
	b, err := note.Data()
	if err != nil {
		return "", fmt.Errorf("read gateway program: %w", err)
	}
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:16]), nil
}

// engineOf finds the version of gVisor in the build information of the program.
func engineOf(program io.ReaderAt) (string, error) {
	info, err := buildinfo.Read(program)
	if err != nil {
		return "", fmt.Errorf("read sentry program: %w", err)
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" {
			return "gvisor " + m.Version, nil
		}
	}
	return "", errors.New("read sentry program: it has no gVisor")
}
