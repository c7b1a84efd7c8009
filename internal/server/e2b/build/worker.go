package build

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// Metadata of the snapshot that a template is, which its sandboxes have.
const (
	MetaUser = "e2b/user"
	MetaDir  = "e2b/workdir"
	// MetaBuild is the id of the build.
	MetaBuild = "e2b/build"
)

// Names of steps that no instruction is.
const (
	stepBase     = "base"
	stepFinalize = "finalize"
)

// worker carries out one build.
type worker struct {
	builds *Builds
	build  *build
	plan   *Plan
	id     string // of the sandbox
	user   string
	dir    string
	moved  bool // dir is not the home directory
	env    map[string]string
}

// run does it, and returns the step that failed.
func (w *worker) run(ctx context.Context) (step string, err error) {
	svc := w.builds.svc
	from, user, network, err := w.builds.base(ctx, w.plan)
	if err != nil {
		return stepBase, err
	}
	w.user, w.dir = user, home(user)
	ttl := timeout.Milliseconds()
	life := &api.LifecycleRequest{TTLMS: &ttl}
	sb, err := svc.Create(ctx, api.CreateRequest{Image: from, Lifecycle: life, Network: network})
	if err != nil {
		return stepBase, err
	}
	defer func() { _ = svc.Destroy(context.WithoutCancel(ctx), sb.ID) }() // it has a ttl
	w.id = sb.ID
	if user == "" {
		if err := w.command(ctx, stepBase, "root", makeUser); err != nil {
			return stepBase, err
		}
		w.user, w.dir = "user", home("user")
	}
	for i, s := range w.plan.Steps {
		step = strconv.Itoa(i + 1)
		w.build.say("info", step, "["+step+"/"+strconv.Itoa(len(w.plan.Steps))+"] "+s.Type+" "+strings.Join(s.Args, " "))
		if err := w.step(ctx, step, s); err != nil {
			return step, err
		}
	}
	return stepFinalize, w.finalize(ctx, life)
}

// makeUser makes the user that clients of E2B work as, where an image has none.
const makeUser = `set -e
id user >/dev/null 2>&1 && exit 0
if command -v useradd >/dev/null; then
	useradd -m -s /bin/bash user
elif command -v adduser >/dev/null; then
	adduser -D user
else
	echo 'user:x:1000:1000::/home/user:/bin/sh' >> /etc/passwd
	echo 'user:x:1000:' >> /etc/group
	mkdir -p /home/user && chown 1000:1000 /home/user
fi
if [ -d /etc/sudoers.d ]; then echo 'user ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/user; fi`

func home(user string) string {
	if user == "root" || user == "" {
		return "/root"
	}
	return "/home/" + user
}

func (w *worker) step(ctx context.Context, step string, s Step) error {
	switch s.Type {
	case "RUN":
		user := w.user
		if len(s.Args) > 1 && s.Args[1] != "" {
			user = s.Args[1]
		}
		return w.command(ctx, step, user, s.Args[0])
	case "ENV":
		for i := 0; i < len(s.Args); i += 2 {
			w.env[s.Args[i]] = s.Args[i+1]
		}
		return nil
	case "WORKDIR":
		w.dir, w.moved = w.absolute(s.Args[0]), true
		return w.command(ctx, step, "root", fmt.Sprintf("mkdir -p %[1]s && { [ %[2]s = root ] || chown %[2]s: %[1]s; }", quote(w.dir), quote(w.user)))
	case "USER":
		w.user = s.Args[0]
		if !w.moved {
			w.dir = home(w.user)
		}
		return w.command(ctx, step, "root", "id "+quote(w.user))
	}
	return w.copy(ctx, step, s)
}

func (w *worker) absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(w.dir, p)
}

// quote returns a text as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lines tells the log of what a command writes.
type lines struct {
	build *build
	step  string
	rest  []byte
}

// maxLine bounds a line of the log.
const maxLine = 8 << 10

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(b), nil
		}
		if i < 0 || i >= maxLine {
			i = maxLine - 1
		}
		l.build.say("info", l.step, strings.ToValidUTF8(strings.TrimRight(string(l.rest[:i+1]), "\r\n"), "�"))
		l.rest = l.rest[i+1:]
	}
}

func (l *lines) end() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte("\n")) // it never fails
	}
}

// command runs a command in a login shell, and fails as it does.
func (w *worker) command(ctx context.Context, step, user, text string) error {
	out := &lines{build: w.build, step: step}
	dir := w.dir
	if user == "root" {
		dir = "/" // that of the user may not be there yet
	}
	res, err := w.builds.svc.Exec(ctx, w.id, api.ExecRequest{Argv: shell("cd " + quote(w.dir) + " 2>/dev/null; " + text), Env: w.env, User: user, Cwd: dir}, api.ExecIO{Stdout: out, Stderr: out})
	out.end()
	if err != nil {
		return err
	}
	if !res.OK {
		return api.Errorf(api.CodeInvalid, "the command ended with exit code %d: %.200s", res.ExitCode, text)
	}
	return nil
}

// shell returns the arguments that run a text as clients of E2B run commands.
func shell(text string) []string {
	return []string{"/bin/sh", "-c", `if [ -x /bin/bash ]; then exec /bin/bash -l -c "$0"; else exec /bin/sh -l -c "$0"; fi`, text}
}

// archive is where files of a COPY are before they are moved.
const archive = "/tmp/.e2b-copy"

// place moves files of a COPY: the contents of a directory, a file by its new name or into a directory, or
// all files that a pattern has selected.
const place = `set -e
src=$1 dest=$2 owner=$3 mode=$4
cd ` + archive + `
if [ -n "$owner" ]; then chown -R "$owner": .; fi
if [ -n "$mode" ]; then find . -mindepth 1 ! -type d ! -type l -exec chmod "$mode" {} +; fi
if [ -d "$src" ]; then
	mkdir -p "$dest"; cp -a "$src"/. "$dest"
elif [ -e "$src" ]; then
	case $dest in */) mkdir -p "$dest";; *) mkdir -p "$(dirname "$dest")";; esac
	cp -a "$src" "$dest"
else
	mkdir -p "$dest"; cp -a $src "$dest"
fi
rm -rf ` + archive

// copy copies files that the client has uploaded.
func (w *worker) copy(ctx context.Context, step string, s Step) error {
	file, err := w.builds.uploads.file(w.build.tenant, s.Hash)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return api.Errorf(api.CodeNotFound, "the files of %q were not uploaded", s.Args[0])
	}
	defer f.Close()
	from, err := unzipped(f)
	if err != nil {
		return err
	}
	svc := w.builds.svc
	if _, err := svc.ChangeFile(ctx, w.id, api.FileChange{FileRef: api.FileRef{Path: archive}, Action: api.FileMkdir, Parents: true}); err != nil {
		return err
	}
	if _, err := svc.WriteArchive(ctx, w.id, api.FileRef{Path: archive}, true, from); err != nil {
		return err
	}
	args := append([]string{}, s.Args...)
	for len(args) < 4 {
		args = append(args, "")
	}
	dest := w.absolute(args[1])
	if strings.HasSuffix(args[1], "/") || args[1] == "." {
		dest += "/"
	}
	out := &lines{build: w.build, step: step}
	res, err := svc.Exec(ctx, w.id, api.ExecRequest{Argv: []string{"/bin/sh", "-c", place, "copy", args[0], dest, cmp.Or(args[2], w.user), args[3]}}, api.ExecIO{Stdout: out, Stderr: out})
	out.end()
	if err == nil && !res.OK {
		err = api.Errorf(api.CodeInvalid, "%s cannot be copied to %s", args[0], args[1])
	}
	return err
}

// unzipped returns an archive without its compression, if it has one.
func unzipped(f io.ReadSeeker) (io.Reader, error) {
	var magic [2]byte
	_, err := io.ReadFull(f, magic[:])
	if err == nil || err == io.ErrUnexpectedEOF || err == io.EOF {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("read an upload: %w", err)
	}
	if magic != [2]byte{0x1f, 0x8b} {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, api.Invalid("files", "the upload is not gzip: %v", err)
	}
	return z, nil
}

// finalize starts what the template is to have running, waits until that is ready, and keeps the state.
func (w *worker) finalize(ctx context.Context, life *api.LifecycleRequest) error {
	svc := w.builds.svc
	// The variables of a sandbox are known when it is made.
	forked, err := svc.Fork(ctx, w.id, api.ForkRequest{Count: 1, Env: w.env, Lifecycle: life, Metadata: map[string]string{MetaUser: w.user, MetaDir: w.dir, MetaBuild: w.build.id}})
	if err != nil {
		return err
	}
	if e := forked.Children[0].Error; e != nil {
		return e
	}
	w.id = forked.Children[0].Sandbox.ID
	defer func() { _ = svc.Destroy(context.WithoutCancel(ctx), w.id) }() // it has a ttl
	if w.plan.Start != "" {
		w.build.say("info", stepFinalize, "START "+w.plan.Start)
		p, err := svc.StartProcess(ctx, w.id, api.StartRequest{Argv: shell(w.plan.Start), User: w.user, Cwd: w.dir})
		if err != nil {
			return err
		}
		if err := w.wait(ctx, p.PID); err != nil {
			return err
		}
	}
	w.build.say("info", stepFinalize, "the state is kept")
	for _, tag := range w.build.tags {
		if err := Keep(ctx, svc, w.id, StateName(w.build.template, tag)); err != nil {
			return err
		}
	}
	return nil
}

// Waits for a program that is started.
const (
	readyTimeout = 10 * time.Minute
	readyPause   = 100 * time.Millisecond
)

// wait returns when the plan's command says that the program is ready.
func (w *worker) wait(ctx context.Context, pid int) error {
	if w.plan.Ready == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, api.Errorf(api.CodeTimeout, "it is not ready after %v: %.200s", readyTimeout, w.plan.Ready))
	defer cancel()
	svc := w.builds.svc
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		res, err := svc.Exec(ctx, w.id, api.ExecRequest{Argv: shell(w.plan.Ready), User: w.user, Cwd: w.dir}, api.ExecIO{})
		if err == nil && res.OK {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if p, err := svc.Process(ctx, w.id, pid); err == nil && p.Kept != nil && p.Kept.Exit != nil && !p.Kept.Exit.OK {
			return api.Errorf(api.CodeInvalid, "the program that is started ended with exit code %d", p.Kept.Exit.ExitCode)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
