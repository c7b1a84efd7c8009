package sentrybin

import (
	"debug/buildinfo"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

//go:embed all:elf
var files embed.FS

const (
	program = "elf/ramet-sentry"
	// lowestFD keeps the file away from the numbers that a child is given its
	// own descriptors under, which happens before it executes Path.
	lowestFD = 64
)

// ErrMissing says that this program was built without its sentry.
var ErrMissing = errors.New("this program was built without the sentry in it: build it with make build")

// Program is the embedded program, ready to be started.
type Program struct {
	file *os.File
	// Engine names the gVisor that is linked into it.
	Engine string
}

// Open copies the program to a sealed file in memory. It returns ErrMissing if
// there is none.
func Open() (*Program, error) {
	src, err := files.Open(program)
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
	fd, err := unix.MemfdCreate("ramet-sentry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory file for the sentry program: %w", err)
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lowestFD)
	unix.Close(fd)
	if err != nil {
		return nil, fmt.Errorf("move memory file of the sentry program: %w", err)
	}
	p := &Program{file: os.NewFile(uintptr(high), "ramet-sentry"), Engine: engine}
	if _, err := io.Copy(p.file, src); err != nil {
		p.Close()
		return nil, fmt.Errorf("copy sentry program: %w", err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(p.file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		p.Close()
		return nil, fmt.Errorf("seal sentry program: %w", err)
	}
	return p, nil
}

// Path is what to execute. It is good for children of this process until Close.
func (p *Program) Path() string { return fmt.Sprintf("/proc/self/fd/%d", p.file.Fd()) }

// Close gives up the file. Programs that run keep it.
func (p *Program) Close() error { return p.file.Close() }

// engineOf finds the version of gVisor in what the Go linker noted.
func engineOf(elf io.ReaderAt) (string, error) {
	info, err := buildinfo.Read(elf)
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
