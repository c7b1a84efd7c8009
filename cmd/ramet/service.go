package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/manager"
	"ramet.dev/ramet/internal/paths"
	"ramet.dev/ramet/internal/sandbox"
)

// poolVariable sets how many blank sentries the daemon keeps ready.
const poolVariable = "RAMET_POOL"

// newService builds what the daemon serves: the composition root.
func newService(ctx context.Context, p paths.Paths, log *slog.Logger) (httpapi.Service, io.Closer, error) {
	pool := manager.DefaultPoolSize
	if v := os.Getenv(poolVariable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > manager.MaxPoolSize {
			return nil, nil, sandbox.Invalid(poolVariable, "%q is not a number from 0 to %d", v, manager.MaxPoolSize)
		}
		pool = n
	}
	engine, err := engineVersion()
	if err != nil {
		return nil, nil, err
	}
	m, err := manager.Open(ctx, manager.Config{
		Paths: p, Executable: "/proc/self/exe", Engine: engine, PoolSize: pool, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	return m, m, nil
}

// engineVersion names what a snapshot's state depends on: the gVisor that is
// linked.
func engineVersion() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == "gvisor.dev/gvisor" {
				return "gvisor " + m.Version, nil
			}
		}
	}
	return "", fmt.Errorf("find engine version: the program was built without module information")
}
