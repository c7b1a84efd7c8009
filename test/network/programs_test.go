package network

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// newProgramsNode opens a node with the image of real programs. configure is called before.
func newProgramsNode(t *testing.T, configure func(n *harness.Node), needs ...string) *harness.Node {
	t.Helper()
	harness.OnlyOnce(t, "what the gateway makes of bytes does not depend on who starts it")
	n := newNode(t)
	n.Close()
	configure(n)
	n.Open()
	n.UseDatabases(t, needs)
	return n
}

// createPrograms makes a sandbox of real programs.
func createPrograms(n *harness.Node, name string, req *api.NetworkRequest) {
	n.T.Helper()
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "databases", Name: name, Network: req}); err != nil {
		n.T.Fatal(err)
	}
}

// journal is a log that is kept.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) bytes() []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Clone(j.text.Bytes())
}

// clients are programs that ask https://files.example.org with the placeholder in a header, by libraries
// as they are installed, and what they print of the method and the key in the answer.
var clients = map[string]string{
	"urllib": `python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request("https://files.example.org/urllib", headers={"X-Key": os.environ["KEY"]})).read().decode())'`,
	"requests": `python3 -c 'import os, requests; s = requests.Session()
for _ in range(2): a = s.get("https://files.example.org/requests", headers={"X-Key": os.environ["KEY"]})
print(a.text)'`,
	"curl":  `curl -sS --http1.1 -H "X-Key: $KEY" https://files.example.org/curl`,
	"curl2": `curl -sS --http2 -H "X-Key: $KEY" https://files.example.org/curl2`,
	"fetch": `node -e 'fetch("https://files.example.org/fetch", {headers: {"X-Key": process.env.KEY}}).then(a => a.text()).then(t => console.log(t))'`,
	"https": `node -e 'require("https").get("https://files.example.org/https", {headers: {"X-Key": process.env.KEY}}, a => a.pipe(process.stdout))'`,
	"node2": `node -e 'const c = require("http2").connect("https://files.example.org"), r = c.request({":path": "/node2", "x-key": process.env.KEY}); r.pipe(process.stdout); r.on("end", () => c.close())'`,
}

// TestSecretOfPrograms has real programs use a secret over TLS. They trust the authority of their tree by
// what the image and the environment say. The secret reaches the server and nothing else has it.
func TestSecretOfPrograms(t *testing.T) {
	const secret = "tk-0123456789-only-the-server-may-see"
	bundle, config := authority(t, "files.example.org", "other.example.org")
	var log journal
	n := newProgramsNode(t, func(n *harness.Node) {
		n.HostCAs, n.Log = bundle, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, "/usr/bin/python3", "/usr/bin/curl", "/usr/bin/node", "/usr/lib/python3/dist-packages/requests/__init__.py")
	s := newAnswerer()
	s.listen(t, "198.51.100.1:443", config)
	s.listen(t, "198.51.100.2:443", config)
	_, err := n.Machine.SetSecret(harness.AsOwner, "KEY", api.SecretRequest{Value: secret, SecretBinding: api.SecretBinding{Names: []string{"files.example.org"}, Header: "X-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	req := allow(t, "files.example.org", "other.example.org")
	req.Rules = map[string]api.NetworkTreatment{"files.example.org": {Secret: &api.NetworkSecret{Header: "X-Key", Value: "${KEY}"}}}
	createPrograms(n, "agent", req)
	program, err := talker()
	if err != nil {
		t.Fatal(err)
	}
	n.Put("agent", api.WriteRequest{FileRef: harness.At("/usr/local/bin/talker"), Mode: new(uint32(0o755))}, string(program))
	run := func(ref, shell string) string {
		t.Helper()
		out, err := n.Run(ref, api.ExecRequest{Shell: shell}, "")
		if err != nil || out.ExitCode != 0 {
			t.Errorf("%s: %v, %+v: %s", shell, err, out.ExecResult, out.Stderr.String())
		}
		if strings.Contains(out.Stdout.String()+out.Stderr.String(), secret) {
			t.Errorf("%s: it has the secret", shell)
		}
		return strings.TrimSpace(out.Stdout.String())
	}
	placeholder := run("agent", `echo "$KEY"`)
	if !strings.HasPrefix(placeholder, "ramet-secret-") {
		t.Fatalf("the placeholder is %q", placeholder)
	}

	if _, err := n.Machine.StartProcess(harness.AsOwner, "agent", api.StartRequest{Argv: []string{"sleep", "1d"}}); err != nil { // it has the variable
		t.Fatal(err)
	}
	want := map[string]bool{}
	stars := strings.Repeat("*", len(secret))
	for name, shell := range clients {
		want["GET /"+name+" "+secret] = true
		if got := run("agent", shell); got != "GET "+stars {
			t.Errorf("%s prints %q", name, got)
		}
	}
	for kind, asked := range map[string]string{
		"websocket": "GET /websocket", "http2": "POST /http2", "grpc": "POST /ramet.test.Echo/Talk",
	} {
		path := map[string]string{"websocket": "/websocket", "http2": "/http2", "grpc": ":443"}[kind]
		want[asked+" "+secret] = true
		if got := run("agent", "talker "+kind+" https://files.example.org"+path+" </dev/null"); got != "whole" {
			t.Errorf("%s says %q", kind, got)
		}
	}
	// What is not treated is not opened, and a placeholder that goes elsewhere is worth nothing.
	want["GET /elsewhere "+placeholder] = true
	if got := run("agent", `curl -sS -H "X-Key: $KEY" https://other.example.org/elsewhere`); got != "GET "+placeholder {
		t.Errorf("another server says %q", got)
	}
	seen := map[string]bool{}
	for _, asked := range s.seen() {
		_, asked, _ = strings.Cut(asked, " ") // the gateway chooses the version
		seen[asked] = true
		if !want[asked] {
			t.Errorf("the servers were asked %q", asked)
		}
	}
	for asked := range want {
		if !seen[asked] {
			t.Errorf("the servers were not asked %q: %q", asked, s.seen())
		}
	}

	// A child has the same; its state goes to disk, also with its memory.
	child := n.Fork("agent", 1)[0].ID
	if got := run(child, clients["requests"]); got != "GET "+stars {
		t.Errorf("a child says %q", got)
	}
	n.Snapshot("agent", api.SnapshotRequest{})
	placeholders := 0
	for _, pid := range n.Sentries() {
		m := memoryOf(t, pid)
		placeholders += bytes.Count(m, []byte(placeholder))
		if bytes.Contains(m, []byte(secret)) {
			t.Errorf("process %d has the secret", pid)
		}
	}
	if placeholders == 0 || !bytes.Contains(memoryOf(t, n.Gateway()), []byte(secret)) {
		t.Error("memory was not searched: sentries have no placeholder, or the gateway no secret")
	}
	n.Hibernate(child)
	if with := filesWith(t, n.Paths.Snapshots(), placeholder); len(with) < 2 {
		t.Errorf("files were not searched: placeholders are in %v of the snapshot and the hibernated child", with)
	}
	if with := append(filesWith(t, n.Paths.DataDir(), secret), filesWith(t, n.Paths.RuntimeDir(), secret)...); len(with) > 0 {
		t.Errorf("these have the secret: %v", with)
	}
	all := fmt.Sprintf("%+v", logOf(n, "agent")) + string(log.bytes()) + string(n.Export("agent", api.ExportRequest{Format: api.ExportLayer}))
	if strings.Contains(all, secret) || !strings.Contains(all, "/requests") {
		t.Errorf("the logs or files of the sandbox have the secret, or the log no requests")
	}
}

// memoryOf returns what a core of a process would have, and the files in memory that it has open.
func memoryOf(t *testing.T, pid int) (all []byte) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil // it has ended
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if fields[1] != "rw-p" || len(fields) > 5 && strings.HasPrefix(fields[5], "[v") {
			continue // what is shared is a file, below
		}
		var begin, end uint64
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &begin, &end); err != nil {
			t.Fatal(err)
		}
		all = append(all, present(t, pid, mem, begin, end)...)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return all
	}
	for _, fd := range fds {
		path := fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:") {
			continue
		}
		if f, err := os.Open(path); err == nil {
			all = append(all, dataOf(t, f)...)
			f.Close()
		}
	}
	return all
}

// present returns the pages of a range of memory that are there: others are not made by reading them.
func present(t *testing.T, pid int, mem *os.File, begin, end uint64) []byte {
	t.Helper()
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	entries := make([]byte, (end-begin)/4096*8)
	if _, err := pagemap.ReadAt(entries, int64(begin/4096*8)); err != nil {
		return nil // it has changed meanwhile
	}
	var all []byte
	there := func(i uint64) bool { return entries[i*8+7]&0xc0 != 0 } // present or swapped
	for i, pages := uint64(0), (end-begin)/4096; i < pages; i++ {
		first := i
		for i < pages && there(i) {
			i++
		}
		b := make([]byte, (i-first)*4096)
		if n, err := mem.ReadAt(b, int64(begin+first*4096)); err == nil {
			all = append(all, b[:n]...)
		}
	}
	return all
}

// dataOf returns what a file has besides holes.
func dataOf(t *testing.T, f *os.File) []byte {
	t.Helper()
	var all []byte
	for at := int64(0); ; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			return all // there is no more
		}
		end, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(io.NewSectionReader(f, begin, end-begin))
		if err != nil {
			t.Fatal(err)
		}
		all, at = append(all, b...), end
	}
}

// filesWith returns the files below dir that have a text.
func filesWith(t *testing.T, dir, text string) (with []string) {
	t.Helper()
	for _, path := range harness.FilesBelow(t, dir) {
		if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
			continue // gone, a socket, or an image of another directory
		}
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.Contains(dataOf(t, f), []byte(text)) {
			with = append(with, path)
		}
		f.Close()
	}
	return with
}
