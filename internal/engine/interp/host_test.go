package interp_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/polltest"
)

// patience bounds every wait for an answer, on a machine that may be busy.
const patience = 60 * time.Second

// host is an interpreter of this machine that runs one of our programs.
type host struct {
	t        *testing.T
	cmd      *exec.Cmd
	requests *os.File
	answers  *os.File
	split    interp.Splitter
	unread   []byte
	run      uint32
	out      output
	hello    interp.Hello
	rest     interp.Rest // as it was said last
	asks     bool        // an interrupt is a request first, see KindInterrupt
}

// output collects what the user's code prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// take returns what was printed and forgets it.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.buf.Reset()
	return o.buf.String()
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// interpreters returns the interpreters of a language that this machine has.
func interpreters(t *testing.T, l interp.Language) []string {
	t.Helper()
	program, ok := interp.ProgramOf(l)
	if !ok {
		t.Fatalf("no program for %s", l)
	}
	var all []string
	if l == interp.Python {
		home, _ := os.UserHomeDir()
		for _, v := range []string{"3.8", "3.9", "3.10", "3.12", "3.13"} {
			found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions", v+".*/bin/python3"))
			all = append(all, found...)
		}
	}
	for _, name := range program.Names {
		if path, err := exec.LookPath(name); err == nil {
			return append(all, path)
		}
	}
	if len(all) == 0 {
		t.Skipf("this machine has no %s", strings.Join(program.Names, " or "))
	}
	return all
}

// each runs a test with each interpreter of a language.
func each(t *testing.T, l interp.Language, test func(*host)) {
	for _, path := range interpreters(t, l) {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "."), func(t *testing.T) {
			t.Parallel()
			test(start(t, l, path))
		})
	}
}

func start(t *testing.T, l interp.Language, path string) *host {
	t.Helper()
	program, _ := interp.ProgramOf(l)
	return startCommand(t, program.Text, exec.Command(path, program.Args...))
}

// startCommand starts an interpreter that reads text as its program.
func startCommand(t *testing.T, text []byte, cmd *exec.Cmd) *host {
	t.Helper()
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	h := &host{t: t, cmd: cmd, requests: inW, answers: outR}
	h.cmd.ExtraFiles = []*os.File{inR, outW}
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	h.cmd.Dir = t.TempDir()
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.WaitDelay = time.Second
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	t.Cleanup(func() {
		// The group is ours: it began with the command, which was not waited for.
		_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
		_ = h.cmd.Wait() // it was killed
	})
	h.write(text)
	kind, _, payload := h.frame()
	hello, err := interp.ParseHello(payload)
	if kind != interp.KindHello || err != nil || hello.PID != h.cmd.Process.Pid {
		t.Fatalf("the first frame is %c %s (%v)", kind, payload, err)
	}
	h.hello = hello
	return h
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func (h *host) write(data []byte) {
	h.t.Helper()
	if _, err := h.requests.Write(data); err != nil {
		h.t.Fatalf("write request: %v: %s", err, h.out.String())
	}
}

// frame reads one whole answer, and notes what is said of rest before it.
func (h *host) frame() (interp.Kind, uint32, []byte) {
	h.t.Helper()
	if err := h.answers.SetReadDeadline(time.Now().Add(patience)); err != nil {
		h.t.Fatal(err)
	}
	var payload []byte
	for {
		part, rest, ok, err := h.split.Next(h.unread)
		if err != nil {
			h.t.Fatalf("%v: %q", err, h.unread)
		}
		if ok {
			h.unread = rest
			payload = append(payload, part.Data...)
			if part.Last && part.Kind != interp.KindRest {
				return part.Kind, part.Run, payload
			}
			if part.Last {
				if h.rest, err = interp.ParseRest(payload); err != nil {
					h.t.Fatal(err)
				}
				payload = nil
			}
			continue
		}
		buf := make([]byte, 4096)
		n, err := h.answers.Read(buf)
		if err != nil {
			h.t.Fatalf("read answer: %v: %s", err, h.out.String())
		}
		h.unread = buf[:n]
	}
}

// answer is all that comes back for one request.
type answer struct {
	interp.Done
	results []interp.Results
}

func (a *answer) result() string {
	if a.Result == nil {
		return ""
	}
	return *a.Result
}

func (h *host) begin(kind interp.Kind, payload string) {
	h.t.Helper()
	h.run++
	h.write(interp.AppendFrame(nil, kind, h.run, []byte(payload)))
}

func (h *host) end() *answer {
	h.t.Helper()
	a := &answer{}
	for {
		kind, run, payload := h.frame()
		if run != h.run {
			h.t.Fatalf("answer to %d, not %d: %c %s", run, h.run, kind, payload)
		}
		if kind == interp.KindDone {
			d, err := interp.ParseDone(payload)
			if err != nil {
				h.t.Fatalf("%v: %s", err, payload)
			}
			a.Done = *d
			return a
		}
		r, err := interp.ParseResult(payload)
		if err != nil {
			h.t.Fatalf("%v: %s", err, payload)
		}
		a.results = append(a.results, r)
	}
}

// cell runs code, whatever comes of it.
func (h *host) cell(code string) *answer {
	h.t.Helper()
	h.begin(interp.KindCell, code)
	return h.end()
}

// want runs code, which must succeed and have the result.
func (h *host) want(code, result string) *answer {
	h.t.Helper()
	a := h.cell(code)
	if a.Error != nil || a.ExitCode != 0 || a.result() != result {
		h.t.Errorf("%s\nresult %q, not %q; exit code %d, error %+v, output %s", code, a.result(), result, a.ExitCode, a.Error, h.out.String())
	}
	return a
}

// fails runs code, which must end with an error of the name whose traceback has
// the text.
func (h *host) fails(code, name string, exitCode int, text string) *answer {
	h.t.Helper()
	a := h.cell(code)
	if a.Error == nil || a.Error.Name != name || a.ExitCode != exitCode || !strings.Contains(a.Error.Traceback, text) || strings.Contains(a.Error.Traceback, "ramet") {
		h.t.Errorf("%s\nerror %+v and exit code %d, not %s with %q and %d", code, a.Error, a.ExitCode, name, text, exitCode)
	}
	return a
}

// printed checks what was printed since the last look.
func (h *host) printed(want string) {
	h.t.Helper()
	polltest.Eventually(h.t, patience, "output", func() bool { return len(h.out.String()) >= len(want) })
	if got := h.out.take(); got != want {
		h.t.Errorf("printed %q, not %q", got, want)
	}
}

// interrupt runs code that prints a line when it has begun, and interrupts it.
func (h *host) interrupt(code string) *answer {
	h.t.Helper()
	h.out.take()
	h.begin(interp.KindCell, code)
	polltest.Eventually(h.t, patience, code, func() bool { return strings.Contains(h.out.String(), "begun\n") })
	if h.asks {
		h.write(interp.AppendFrame(nil, interp.KindInterrupt, h.run, nil))
	}
	// The signal is for what does not read requests.
	if !h.asks {
		h.signal()
	}
	timer := time.AfterFunc(time.Second, func() {
		if h.asks {
			h.signal()
		}
	})
	defer timer.Stop()
	a := h.end()
	h.out.take()
	return a
}

// signal sends an interrupt. The group is ours until Wait.
func (h *host) signal() { _ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGINT) }

// variables returns the variables by name.
func (h *host) variables() map[string]interp.Variable {
	h.t.Helper()
	h.begin(interp.KindVariables, "")
	a := h.end()
	if a.Error != nil {
		h.t.Fatalf("variables: %+v", a.Error)
	}
	all := map[string]interp.Variable{}
	for _, v := range a.Variables {
		all[v.Name] = v
	}
	return all
}
