package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

const (
	envSocket  = "RAMET_TEST_SOCKET"  // of the fake service; nothing listens if it is empty
	envVersion = "RAMET_TEST_VERSION" // of the command
)

func TestMain(m *testing.M) {
	testscript.Main(leakTest{m}, map[string]func(){"ramet": func() {
		os.Exit(cli.Run(context.Background(), testDeps(os.Getenv(envSocket), os.Getenv(envVersion)), os.Args[1:],
			cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}})
}

type leakTest struct{ *testing.M }

// Run implements testscript.TestingM.
func (l leakTest) Run() int {
	code := l.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func testDeps(socket, version string) cli.Deps {
	repeat := 0
	return cli.Deps{
		Version: cli.Version{Version: version, Commit: "0123", Go: "go1", OS: "linux", Arch: "amd64"},
		Connect: func(ctx context.Context, start bool) (*client.Client, api.Health, error) {
			if socket == "" {
				return nil, api.Health{}, api.Errorf(api.CodeUnavailable, "nobody listens, start=%t", start)
			}
			c, err := client.New("unix:" + socket)
			if err != nil {
				return nil, api.Health{}, err
			}
			h, err := c.Health(ctx)
			return c, h, err
		},
		Serve: func(_ context.Context, opts cli.ServeOptions) error {
			if n := opts.NetworkMax; n != nil {
				return fmt.Errorf("serve bounded by %q %v", n.Profile, n.Allow)
			}
			return fmt.Errorf("serve with background=%t", opts.Background)
		},
		Doctor: &cli.Hook{Run: func(_ context.Context, c *client.Client, stdout io.Writer, opts cli.HookOptions) error {
			_, err := fmt.Fprintln(stdout, "doctor", c == nil, opts.JSON, opts.Args)
			return errors.Join(err, cli.ExitError(7))
		}},
		Bench: &cli.Hook{
			Flags: func(f *pflag.FlagSet) { f.IntVar(&repeat, "repeat", 1, "times") },
			Run: func(ctx context.Context, c *client.Client, stdout io.Writer, _ cli.HookOptions) error {
				sb, err := c.Sandboxes.Get(ctx, "base")
				if err == nil {
					_, err = fmt.Fprintln(stdout, "bench", sb.ID, repeat)
				}
				return err
			},
		},
	}
}

// TestScripts runs the sessions in testdata/script, each with a fake service of
// its own. They are the specification of the command line.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv(envSocket, apitest.Serve(env.T().(testing.TB), fakeService()))
			env.Setenv(envVersion, "test")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command waits a second for races at its end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and checks its exit code: exits CODE PROGRAM [ARG]…
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// An interrupt leaves a process alone whose terminal takes no input, and says so.
func TestInterruptOfTerminal(t *testing.T) {
	entered := make(chan struct{})
	svc := &apitest.Service{ProcessFuncs: apitest.ProcessFuncs{
		StartProcessFunc: func(context.Context, string, api.StartRequest) (*api.Process, error) {
			return &api.Process{PID: 13}, nil
		},
		AttachFunc: func(ctx context.Context, _ string, _ int, _ api.AttachRequest, _ api.AttachIO) (*api.Position, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}}
	code, said := interrupted(t, svc, entered, strings.NewReader(""), "exec", "-t", "base", "hang")
	if code != 130 {
		t.Errorf("exit code %d", code)
	}
	if want := "the process runs on; 'ramet attach base 13' connects again"; !strings.Contains(said, want) {
		t.Errorf("it said %q", said)
	}
}

// An interrupt ends the command in the sandbox, and ramet with 130.
func TestInterrupt(t *testing.T) {
	for _, args := range [][]string{{"exec", "base", "--", "hang"}, {"exec", "-i", "base", "hang"}, {"exec", "--json", "base", "hang"}} {
		entered, ended := make(chan struct{}), make(chan error, 1)
		svc := &apitest.Service{ExecFunc: func(ctx context.Context, _ string, _ api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
			close(entered)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}}
		stdin, typing := io.Pipe()
		code, said := interrupted(t, svc, entered, stdin, args...)
		if code != 130 {
			t.Errorf("%v: exit code %d", args, code)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v: the command's context ended with %v", args, err)
		}
		typing.Close() // ends the read that ramet left behind
		if !strings.Contains(said, "interrupted") {
			t.Errorf("%v: output %q", args, said)
		}
	}
}

// interrupted runs ramet until it has entered the service, interrupts it, and returns its
// exit code and all that it said.
func interrupted(t *testing.T, svc *apitest.Service, entered <-chan struct{}, stdin io.Reader, args ...string) (code int, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	result := make(chan int, 1)
	socket := apitest.Serve(t, svc)
	go func() {
		result <- cli.Run(context.Background(), testDeps(socket, "test"), args, cli.Stdio{In: stdin, Out: &stdout, Err: &stderr})
	}()
	select {
	case <-entered:
	case code := <-result:
		t.Fatalf("%v: exit code %d: %s", args, code, stderr.String())
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code = <-result
	return code, stdout.String() + stderr.String()
}
