package registries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// answerTime bounds how long one tool is waited for.
	answerTime = 10 * time.Second
	// maxAnswer bounds what is kept of each of its outputs.
	maxAnswer = 1 << 20
)

// Host returns the system that this process runs on. home is the home directory of the user whose
// configuration counts, and environ the environment, as of os.Environ.
func Host(home string, environ []string) *System {
	env := map[string]string{}
	for _, e := range environ {
		if key, value, ok := strings.Cut(e, "="); ok {
			env[key] = value
		}
	}
	return &System{Name: "host", Files: os.DirFS("/"), Home: strings.TrimPrefix(home, "/"), Env: env, Ask: func(ctx context.Context, argv ...string) (string, string, error) {
		return run(ctx, environ, argv)
	}}
}

// run runs a tool in the root directory, where no project is.
func run(ctx context.Context, environ, argv []string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", environ
	cmd.WaitDelay = time.Second // children of it may keep its outputs open
	var out, diag limited
	cmd.Stdout, cmd.Stderr = &out, &diag
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", "", nil
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("no answer within %v: %w", answerTime, ctx.Err())
	case err != nil && !errors.As(err, &exit):
		return "", "", fmt.Errorf("run %s: %w", argv[0], err)
	}
	return out.String(), diag.String(), nil
}

// limited keeps the beginning of an output.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), maxAnswer-l.Len())])
	return len(p), nil
}
