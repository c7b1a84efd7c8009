package harness

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// makeImageTar compiles the guest program and packs it with the few files that a
// sandbox needs.
func makeImageTar(path string) error {
	// go test notes that the results depend on the program's source, and does not take
	// them from its cache after a change. There need not be any source.
	_, _ = os.ReadDir("../guest")
	program := filepath.Join(filepath.Dir(path), "guest")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "ramet.dev/ramet/test/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build guest program: %w: %s", err, out)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeImageTar(f, program)
}

func writeImageTar(to io.Writer, program string) error {
	w := tar.NewWriter(to)
	for _, d := range []string{"bin", "etc", "root", "srv", "run", "var", "dev", "proc", "sys", "tmp"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		data []byte
		mode int64
	}{
		{"bin/guest", binary, 0o755},
		{"etc/passwd", []byte("root:x:0:0::/root:/bin/guest\nworker:x:1000:1001::/tmp:/bin/guest\n"), 0o644},
		{"etc/group", []byte("root:x:0:\nworkers:x:1001:\nothers:x:1002:\n"), 0o644},
		{"srv/changed", []byte("image\n"), 0o644},
		{"srv/deleted", []byte("image\n"), 0o644},
		{"srv/kept", []byte("kept\n"), 0o644},
		{"srv/broken", []byte("\x7fELF and nothing more"), 0o755},
		{"srv/text", []byte("no program"), 0o644},
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.data))}); err != nil {
			return err
		}
		if _, err := w.Write(file.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// GuestProgram is the guest program, which tests of file systems run on the host
// too.
func GuestProgram() string {
	return filepath.Join(Assets, "guest")
}
