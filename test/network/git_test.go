package network

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// gitServer serves a repository over HTTP. A transfer that is larger than a part waits after it until gate
// is closed.
type gitServer struct {
	git, root string
	gate      chan struct{}
	waiting   atomic.Int32 // transfers
}

// wait is what a transfer does after its first part.
func (s *gitServer) wait() {
	s.waiting.Add(1)
	<-s.gate
}

const gitPart = 256 << 10

func (s *gitServer) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(s.git, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// gated passes on the first part and waits.
type gated struct {
	http.ResponseWriter
	s *gitServer
	n int
}

func (g *gated) Write(b []byte) (int, error) {
	if g.n < gitPart && g.n+len(b) >= gitPart {
		if err := http.NewResponseController(g.ResponseWriter).Flush(); err != nil {
			return 0, err
		}
		g.s.wait()
	}
	n, err := g.ResponseWriter.Write(b)
	g.n += n
	return n, err
}

// ServeHTTP implements http.Handler.
func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// CGI wants to know the length of what git sends in chunks.
	var body bytes.Buffer
	n, err := io.CopyN(&body, r.Body, gitPart)
	if err == nil && n == gitPart {
		s.wait()
		_, err = io.Copy(&body, r.Body)
	}
	if err != nil && err != io.EOF {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(&body), int64(body.Len()), nil
	backend := cgi.Handler{Path: s.git, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + s.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"}, Stderr: io.Discard}
	backend.ServeHTTP(&gated{ResponseWriter: w, s: s}, r)
}

// newGitServer makes a repository with some MiB, and serves it at addresses.
func newGitServer(t *testing.T, addresses ...string) *gitServer {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("this machine has no git, which is the server")
	}
	s := &gitServer{git: git, root: harness.NewDir(t), gate: make(chan struct{})}
	work := harness.NewDir(t)
	s.run(t, work, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(work, "data"), data[:4<<20], 0o644); err != nil {
		t.Fatal(err)
	}
	s.run(t, work, "add", "data")
	s.run(t, work, "commit", "-q", "-m", "data")
	s.run(t, s.root, "clone", "-q", "--bare", work, "repo.git")
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		t.Cleanup(func() { server.Close(); <-served })
	}
	return s
}

// gitScript runs "clone URL" or "push URL", once more after a failure, and says so. A branch is named by
// chance, so that a child that pushes once more does so to another one than its parent.
const gitScript = `#!/bin/bash
clone() { rm -rf "$dir" && git clone -q "$url" "$dir"; }
push() { git -C "$dir" push -q "$url" "HEAD:refs/heads/pushed-$(cat /proc/sys/kernel/random/uuid)"; }
what=$1 url=$2 dir=/srv/$3
"$what" || { echo failed; "$what" && echo again; } || exit 1
git -C "$dir" rev-parse HEAD
git -C "$dir" fsck --full 2>&1
`

// TestGit forks while git clones from, and pushes to, a server on the loopback address of the host and one
// whose requests the gateway looks at.
func TestGit(t *testing.T) {
	n := newProgramsNode(t, func(*harness.Node) {}, "/usr/bin/git")
	s := newGitServer(t, "127.0.0.1:3000", "198.51.100.1:80")
	createPrograms(n, "base", allow(t, "host.ramet.internal:3000", "files.example.org"))
	n.Put("base", api.WriteRequest{FileRef: harness.At("/srv/try"), Mode: new(uint32(0o755))}, gitScript)
	n.Put("base", api.WriteRequest{FileRef: harness.At("/srv/more")}, string(data[8<<20:10<<20]))
	n.LongExec("base", api.ExecRequest{Shell: "git config --global user.name a && git config --global user.email a@example.org && mkdir /srv/0 && cd /srv/0 && git init -q && mv ../more . && git add more && git commit -q -m more && cp -r . ../1"})
	commits := map[string]string{"clone": s.run(t, s.root, "-C", "repo.git", "rev-parse", "main"), "push": strings.TrimSpace(n.LongExec("base", api.ExecRequest{Shell: "git -C /srv/0 rev-parse HEAD"}))}

	type job struct {
		*harness.Follower
		what string
		pid  int
	}
	var jobs []job
	for i, url := range []string{"http://host.ramet.internal:3000/repo.git", "http://files.example.org/repo.git"} {
		for what, dir := range map[string]string{"clone": fmt.Sprint("clone", i), "push": fmt.Sprint(i)} {
			p, err := n.Machine.StartProcess(harness.AsOwner, "base", api.StartRequest{Argv: []string{"/srv/try", what, url, dir}})
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, job{n.Follow("base", p.PID, 0), what, p.PID})
		}
	}
	harness.Eventually(t, "transfers", func() error {
		if w := int(s.waiting.Load()); w != len(jobs) {
			return fmt.Errorf("%d are under way", w)
		}
		return nil
	})
	child := n.Fork("base", 1)[0].ID
	began := time.Now()
	var theirs []job
	for _, j := range jobs {
		theirs = append(theirs, job{n.Follow(child, j.pid, 0), j.what, j.pid})
	}
	// A child sees a reset. git's client of HTTP begins again by itself if no byte of the answer was there, and
	// pushes to the branch of its parent then: the server refuses one of the two. Else git fails and the script
	// begins again.
	harness.Eventually(t, "a child's transfers", func() error {
		if w := int(s.waiting.Load()); w != 2*len(jobs) {
			return fmt.Errorf("%d are under way again", w-len(jobs))
		}
		return nil
	})
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("the child's transfers are under way again only %v after the fork", d)
	}
	close(s.gate)
	for i, j := range append(jobs, theirs...) {
		exit := j.Exit()
		out, _ := j.Text()
		failed := strings.Contains(out, "failed\n")
		if exit.ExitCode != 0 || !strings.Contains(out, commits[j.what]+"\n") || strings.Contains(out, "again\n") != failed {
			t.Errorf("%s %d ends with %+v: %q", j.what, i, exit, out)
		}
		reset := strings.Contains(out, "reset by peer") || strings.Contains(out, "Broken pipe")
		refused := j.what == "push" && strings.Contains(out, "reference already exists")
		if failed != (reset || refused) || reset && i < len(jobs) {
			t.Errorf("%s %d fails: %q", j.what, i, out)
		}
	}
	pushed := strings.Split(s.run(t, s.root, "-C", "repo.git", "for-each-ref", "--format=%(objectname)", "refs/heads/pushed-*"), "\n")
	if len(pushed) != 4 {
		t.Errorf("the server has %d branches that were pushed", len(pushed))
	}
	for _, commit := range pushed {
		if commit != commits["push"] {
			t.Errorf("the server has %s, not %s", commit, commits["push"])
		}
	}
	s.run(t, s.root, "-C", "repo.git", "fsck", "--full")
}

// TestGitWithASecret clones and pushes over TLS with a token as the password, which the guest does not have.
func TestGitWithASecret(t *testing.T) {
	const token = "gt-0123456789-abcdefgh"
	bundle, config := authority(t, "files.example.org")
	n := newProgramsNode(t, func(n *harness.Node) { n.HostCAs = bundle }, "/usr/bin/git")
	s := newGitServer(t)
	close(s.gate)
	l, err := tls.Listen("tcp", "198.51.100.1:443", config)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.ServeHTTP(w, r)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-served })
	_, err = n.Machine.SetSecret(harness.AsOwner, "GIT_TOKEN", api.SecretRequest{Value: token, SecretBinding: api.SecretBinding{Names: []string{"files.example.org"}, Header: "Authorization"}})
	if err != nil {
		t.Fatal(err)
	}
	createPrograms(n, "base", rules(t, api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "Authorization", Value: "${GIT_TOKEN}"}}))
	said := n.LongExec("base", api.ExecRequest{Shell: `set -e
git config --global user.name a && git config --global user.email a@example.org
git clone -q "https://me:$GIT_TOKEN@files.example.org/repo.git" /srv/repo && cd /srv/repo
head -c 2000000 /dev/urandom >more && git add more && git commit -q -m more && git push -q origin HEAD:refs/heads/more 2>&1
git rev-parse HEAD`})
	if commit := s.run(t, s.root, "-C", "repo.git", "rev-parse", "more"); said != commit+"\n" {
		t.Errorf("git says %q, and the server has %s", said, commit)
	}
}
