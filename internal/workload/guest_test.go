package workload

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// startAgent runs the agent outside a sandbox, with an empty numpy, and returns
// its port and the path of the command that asks it.
func startAgent(t *testing.T) (port, ask string) {
	t.Helper()
	for _, program := range []string{"python3", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("this machine has no %s", program)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"numpy.py": "", "agent.py": agentProgram, "ask": askScript} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	cmd := exec.Command("python3", filepath.Join(dir, "agent.py"), port)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the agent does not listen")
		}
		time.Sleep(5 * time.Millisecond) // as start.sh does: there is no other way to tell
	}
	return port, filepath.Join(dir, "ask")
}

func TestAgent(t *testing.T) {
	port, ask := startAgent(t)
	for _, tc := range []struct {
		name, program, want string
		bad                 bool
	}{
		{name: "answer", program: "print(6 * 7)", want: "42\n"},
		{name: "keeps variables", program: "x = 1"},
		{name: "has variables", program: "x += 1; print(x)", want: "2\n"},
		{name: "more bytes than characters", program: "print('größer — 大')", want: "größer — 大\n"},
		{name: "functions see variables", program: "def f():\n    return x\nprint(f())", want: "2\n"},
		{name: "error", program: "print('first'); nothing", want: "first\nTraceback", bad: true},
		{name: "syntax error", program: "(", want: "Traceback", bad: true},
		{name: "long", program: "print('" + strings.Repeat("x", 100_000) + "')", want: strings.Repeat("x", 100_000) + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command("bash", ask, port)
			cmd.Stdin = strings.NewReader(tc.program)
			out, err := cmd.Output()
			if (err != nil) != tc.bad {
				t.Errorf("error is %v", err)
			}
			if !strings.HasPrefix(string(out), tc.want) || !tc.bad && string(out) != tc.want {
				t.Errorf("answered %.200q, not %.200q", out, tc.want)
			}
		})
	}
	resp, err := http.Get("http://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("GET: %s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAskWithoutAgent(t *testing.T) {
	_, ask := startAgent(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	out, err := exec.Command("bash", ask, port).Output()
	if err == nil || len(out) > 0 {
		t.Errorf("answered %q, %v", out, err)
	}
}
