package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/paths"
)

// envBehaviour tells a daemon that is this test binary how to fail.
const envBehaviour = "RAMET_TEST_DAEMON"

// TestMain is also the program that Ensure starts, and a command that calls
// Ensure.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			os.Exit(daemonMain())
		case "ensure":
			os.Exit(ensureMain())
		}
	}
	goleak.VerifyTestMain(m)
}

func daemonMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if os.Getenv(envBehaviour) == "crash" {
		fmt.Fprintln(os.Stderr, "segmentation fault, so to speak")
		return 3
	}
	p, err := paths.Find()
	if err != nil {
		panic(err)
	}
	h, err := Inherit(p)
	if err != nil {
		panic(err)
	}
	err = Serve(ctx, Config{
		Paths: p, Version: "test", Handover: h, Logger: slog.New(slog.NewTextHandler(NewLog(p), nil)),
		NewService: func(context.Context, paths.Paths, *slog.Logger) (service.Service, io.Closer, error) {
			if os.Getenv(envBehaviour) == "refuse" {
				return nil, nil, api.Errorf(api.CodeIsolation, "no user namespaces")
			}
			return &apitest.Service{}, nil, nil
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ensureMain prints which daemon it found or started.
func ensureMain() int {
	p, err := paths.Find()
	if err != nil {
		panic(err)
	}
	c, h, err := Ensure(context.Background(), p)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	if _, err := c.Sandboxes.Tree(context.Background(), ""); api.CodeOf(err) != api.CodeUnsupported {
		fmt.Println("the daemon does not answer:", errors.Unwrap(err), err)
		return 1
	}
	fmt.Println(h.PID)
	return 0
}

// testPaths returns fresh directories, short enough for a socket.
func testPaths(t *testing.T) paths.Paths {
	t.Helper()
	dir, err := os.MkdirTemp("", "rmt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p, err := paths.New(dir+"/run", dir+"/data")
	if err != nil {
		t.Fatal(err)
	}
	return p
}
