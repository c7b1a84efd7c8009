package harness

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/network/process"
	"ramet.dev/ramet/internal/sentry"
)

// Suite is what the test binary of a suite can be besides a sentry and its tests.
type Suite struct {
	// Works are what daemons do until a test kills them, by the name in a victim.
	Works map[string]Work
	// Programs are further programs, by their first argument.
	Programs map[string]func(args []string) (code int)
}

// Main runs the tests of a suite, or what the binary was started as: a sentry, as the real
// one is, a daemon that a test kills, or a program of the suite. It returns the exit code.
func Main(m *testing.M, s Suite) int {
	if code, is := process.Main(os.Args); is { // the gateway
		return code
	}
	if len(os.Args) > 1 {
		name, args := os.Args[1], os.Args[2:]
		if program := s.Programs[name]; program != nil {
			return program(args)
		}
		switch name {
		case "sentry":
			return sentry.Main(args)
		case "daemon":
			return victimMain(s.Works, args)
		case "assets":
			return assetsMain(args)
		}
	}
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		return 1
	}
	return code
}

// base is the directory of everything the tests make. Its path is short, as
// sockets lie below it.
var base string

// EnvAssets names the directory with the image's tar, so that the test binary
// that runs as an ordinary user need not make it again.
const EnvAssets = "RAMET_TEST_ASSETS"

// Assets is the directory of the image's tar.
var Assets string

// assetsMain makes the assets in a directory, for another machine if GOARCH says so.
func assetsMain(args []string) (code int) {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "assets DIRECTORY")
		return 2
	}
	if err := makeImageTar(filepath.Join(args[0], "image.tar")); err != nil {
		fmt.Fprintf(os.Stderr, "make assets: %v\n", err)
		return 1
	}
	return 0
}

func runAll(m *testing.M) (code int, err error) {
	if base, err = os.MkdirTemp("", "ramet-it-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(base)
	if err := os.Chmod(base, 0o755); err != nil { // for the ordinary user
		return 1, err
	}
	if Assets = os.Getenv(EnvAssets); Assets == "" {
		Assets = base
		if err := makeImageTar(filepath.Join(base, "image.tar")); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}
