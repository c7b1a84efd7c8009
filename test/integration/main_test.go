package integration

import (
	"archive/tar"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/sentry"
)

// envAssets names the directory with the image's tar, so that the test binary
// that runs as an ordinary user need not make it again.
const envAssets = "RAMET_INTEGRATION_ASSETS"

// base is the directory of everything the tests make. Its path is short, as
// sockets lie below it.
var base string

// assets is the directory of the image's tar.
var assets string

// TestMain lets the test binary be a sentry, as the real one is, and the daemon
// that crash tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "sentry":
			os.Exit(sentry.Main(os.Args[2:]))
		case "container":
			os.Exit(containerMain(os.Args[2:]))
		case "cli":
			os.Exit(cliMain(os.Args[2:]))
		case "version": // the launcher asks whether it can make namespaces
			return
		case "daemon":
			os.Exit(daemonMain(os.Args[2:]))
		}
	}
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if base, err = os.MkdirTemp("", "ramet-it-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil { // for the ordinary user
		return 1, err
	}
	if assets = os.Getenv(envAssets); assets == "" {
		assets = base
		if err := makeImageTar(filepath.Join(base, "image.tar")); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// makeImageTar compiles the guest program and packs it with the few files that a
// sandbox needs.
func makeImageTar(path string) error {
	program := filepath.Join(filepath.Dir(path), "guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./guest")
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
