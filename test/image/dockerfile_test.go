package image

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/build"
	"ramet.dev/ramet/internal/build/contextdir"
	"ramet.dev/ramet/test/harness"
)

// builds makes images of Dockerfiles in a node.
type builds struct {
	t   *testing.T
	n   *harness.Node
	c   *client.Client
	dir string
	out bytes.Buffer
}

func newBuilds(t *testing.T) *builds {
	t.Helper()
	n := harness.NewNode(t)
	c, err := client.New("unix:" + n.Serve())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &builds{t: t, n: n, c: c, dir: harness.NewDir(t)}
}

// file writes a file of the build context.
func (b *builds) file(name, text string) {
	b.t.Helper()
	p := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// run builds with a changed request.
func (b *builds) run(ctx context.Context, text string, change func(*build.Request)) (*api.Image, error) {
	b.t.Helper()
	files, err := contextdir.Open(b.dir, contextdir.Limits{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer files.Close()
	b.out.Reset()
	req := build.Request{File: "Dockerfile", Text: []byte(text), Context: files, Name: "app", Out: &b.out}
	if change != nil {
		change(&req)
	}
	return build.Run(ctx, b.c, req)
}

func (b *builds) must(text string, change func(*build.Request)) *api.Image {
	b.t.Helper()
	img, err := b.run(b.t.Context(), text, change)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.out.String())
	}
	b.empty()
	return img
}

// empty checks that no sandbox is left.
func (b *builds) empty() {
	b.t.Helper()
	left, err := b.c.Sandboxes.List(b.t.Context(), api.ListFilter{})
	if err != nil || len(left) > 0 {
		b.t.Errorf("%d sandboxes are left: %v", len(left), err)
	}
}

// said checks the steps that a build showed.
func (b *builds) said(want ...string) {
	b.t.Helper()
	for _, text := range want {
		if !strings.Contains(b.out.String(), text) {
			b.t.Errorf("the build does not show %q:\n%s", text, b.out.String())
		}
	}
}

// in runs the guest program in a sandbox of an image, and returns its output.
func (b *builds) in(image string, args ...string) string {
	b.t.Helper()
	s, err := b.n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: image})
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		if err := b.n.Machine.Destroy(harness.AsOwner, s.ID); err != nil {
			b.t.Error(err)
		}
	}()
	out, err := b.n.Run(s.ID, api.ExecRequest{Argv: append([]string{"/bin/guest"}, args...)}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	return out.Stdout.String() + out.Stderr.String()
}

const app = `ARG BASE=box
FROM ${BASE} AS build
ARG VERSION=1
ENV A="version $VERSION" B=b
WORKDIR /srv/app
RUN ["guest", "say", "env:A", "env:VERSION"]
RUN ["guest", "write", "out", "built\n"]
COPY --chown=7:8 src/ ./src/
COPY one two.* /etc/conf/
RUN ["guest", "cat", "src/deep/text", "/etc/conf/two.txt", "/etc/conf/one"]

FROM scratch
COPY --from=build /srv/app/ /app
COPY --from=box /bin/guest /bin/
COPY --chmod=600 one /renamed
WORKDIR /app
ENV C=c
LABEL kept=yes
EXPOSE 80
HEALTHCHECK CMD ["/bin/guest"]
USER 5:6
CMD ["/bin/guest", "say", "x"]
`

// TestDockerfile builds in several stages, and builds again after changes.
func TestDockerfile(t *testing.T) {
	b := newBuilds(t)
	for name, text := range map[string]string{"src/deep/text": "text\n", "src/left.log": "log\n", "one": "1\n", "two.txt": "2\n"} {
		b.file(name, text)
	}
	ignore := func(r *build.Request) {
		if err := r.Context.Ignore(".dockerignore", []byte("**/*.log\n")); err != nil {
			t.Fatal(err)
		}
	}
	img := b.must(app, ignore)
	b.said("[build 2/6] RUN", "version 1\n1\n", "text\n2\n1\n", "[stage-1 3/4] COPY --chmod=600 one /renamed")
	if img.User != "5:6" || img.Cwd != "/app" || strings.Join(img.Env, " ") != "C=c" || strings.Join(img.Cmd, " ") != "/bin/guest say x" ||
		img.Labels["kept"] != "yes" || strings.Join(img.Ports, " ") != "80/tcp" || img.Healthcheck == nil || len(img.Names) != 1 || img.Names[0] != "app" {
		t.Errorf("image %+v", img)
	}
	if got := b.in("app", "cat", "out", "src/deep/text"); got != "built\ntext\n" {
		t.Errorf("the image has %q", got)
	}
	if got := b.in("app", "cat", "/renamed"); !strings.Contains(got, "permission denied") {
		t.Errorf("a file of mode 600 of root is read by user 5: %q", got)
	}
	s := b.n.CreateFrom("app", "kept")
	archive := b.n.Export(s.ID, api.ExportRequest{Format: api.ExportTar})
	names := strings.Join(tarNames(t, archive), " ")
	if strings.Contains(names, "left.log") || !strings.Contains(names, "app/src/deep/text") {
		t.Errorf("files are %s", names)
	}
	b.n.ImportBytes("imported", b.n.Export(s.ID, api.ExportRequest{Format: api.ExportOCI}))
	if imported, err := b.c.Images.Get(t.Context(), "imported"); err != nil || !reflect.DeepEqual(imported.ImageConfig, img.ImageConfig) {
		t.Errorf("an exported image has %+v, not %+v: %v", imported.ImageConfig, img.ImageConfig, err)
	}
	if err := b.n.Machine.Destroy(harness.AsOwner, s.ID); err != nil {
		t.Fatal(err)
	}

	if again := b.must(app, ignore); again.ID != img.ID || b.out.String() != "CACHED app\n" {
		t.Errorf("the same build made %s, and says\n%s", again.ID, b.out.String())
	}
	last := strings.Replace(app, `"say", "x"`, `"say", "y"`, 1)
	if changed := b.must(last, ignore); changed.ID == img.ID || changed.Cmd[2] != "y" || strings.Contains(strings.ReplaceAll(b.out.String(), "CACHED [", ""), "[") {
		t.Errorf("another CMD: image %+v, and steps\n%s", changed, b.out.String())
	}
	b.file("one", "eins\n")
	b.must(app, ignore)
	b.said("CACHED [build 4/6] COPY", "\n[build 5/6] COPY one two.* /etc/conf/", "\n[stage-1 3/4] COPY")
	b.must(app, func(r *build.Request) {
		ignore(r)
		r.Args = map[string]string{"VERSION": "2", "NONE": "x"}
		r.Target = "build"
	})
	b.said("warning: no ARG takes the build argument NONE", "version 2\n2\n", "CACHED [build 1/6] WORKDIR")
	b.must(app, func(r *build.Request) { ignore(r); r.NoCache = true; r.Name = "fresh" })
	if strings.Contains(b.out.String(), "CACHED") {
		t.Errorf("without the cache:\n%s", b.out.String())
	}
	if got := b.in("fresh", "cat", "out"); got != "built\n" {
		t.Errorf("without the cache the image has %q", got)
	}
}

// TestDockerfileMounts runs commands with secrets, caches and files that are there for one command.
func TestDockerfileMounts(t *testing.T) {
	b := newBuilds(t)
	b.file("conf/a", "bound\n")
	const secret = "a secret text of forty-two characters....."
	secrets := func(r *build.Request) { r.Secrets = map[string]string{"token": secret} }
	const text = `FROM box
WORKDIR /work
RUN --mount=type=secret,id=token,uid=1000 --mount=type=secret,id=token,env=TOKEN ["guest", "say", "file:/run/secrets/token", "env:TOKEN"]
RUN --mount=type=cache,id=one,target=/cache ["guest", "write", "/cache/kept", "cached\n"]
RUN --mount=type=cache,id=one,target=/other ["guest", "cat", "/other/kept"]
RUN --mount=source=conf,target=. --mount=type=bind,from=box,source=/etc/group,target=/srv/group --mount=type=tmpfs,target=/t ["guest", "cat", "a", "/srv/group"]
RUN ["guest", "write", "/work/own", "own\n"]
`
	img := b.must(text, secrets)
	b.said(secret+secret+"\n", "\ncached\n", "\nbound\nroot:x:0:\n")
	s := b.n.CreateFrom("app", "")
	names := tarNames(t, b.n.Export(s.ID, api.ExportRequest{Format: api.ExportTar}))
	for _, name := range names {
		if strings.HasSuffix(name, "token") || strings.HasSuffix(name, "kept") && name != "srv/kept" || name == "work/a" || name == "srv/group" {
			t.Errorf("the image has %s", name)
		}
	}
	if err := b.n.Machine.Destroy(harness.AsOwner, s.ID); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(b.n.Paths.DataDir(), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s has the secret", p)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	b.must(text+"CMD x\n", nil) // the secret does not decide a key
	b.said("CACHED [stage-0 2/6] RUN --mount=type=secret", "CACHED [stage-0 6/6]")
	if again := b.must(text, secrets); again.ID != img.ID {
		t.Errorf("the image is %s, and was %s", again.ID, img.ID)
	}
	if n, err := build.Prune(t.Context(), b.c, time.Now().Add(-time.Hour)); err != nil || n != 0 {
		t.Errorf("%d states of an hour ago were removed: %v", n, err)
	}
	if n, err := build.Prune(t.Context(), b.c, time.Now()); err != nil || n != 7 { // 3 snapshots, 3 images, 1 volume
		t.Errorf("%d states and caches were removed: %v", n, err)
	}
	if images, err := b.c.Images.List(t.Context()); err != nil || len(images) != 3 {
		t.Errorf("images are %+v: %v", images, err)
	}
	_, err = b.run(t.Context(), "FROM box\nRUN --mount=source=conf,target=/srv [\"guest\", \"say\"]\n", nil)
	if err == nil || !strings.Contains(err.Error(), "Dockerfile:2: RUN --mount at /srv is not supported: the stage has files there") {
		t.Errorf("a mount over files: %v", err)
	}
	b.empty()
}

// TestWarm keeps the processes of a command in a snapshot, from which sandboxes are created.
func TestWarm(t *testing.T) {
	b := newBuilds(t)
	img := b.must("FROM box\nWORKDIR /srv\nHEALTHCHECK CMD [\"guest\", \"cat\", \"/srv/kept\"]\n", func(r *build.Request) { r.Name = "app-cold" })
	warm := func(command ...string) (*api.Snapshot, error) {
		if err := build.CheckWarm(t.Context(), b.c, "app"); err != nil {
			return nil, err
		}
		b.out.Reset()
		return build.Warm(t.Context(), b.c, build.WarmRequest{Image: img, Name: "app", Command: command, Out: &b.out})
	}
	health := img.Healthcheck
	img.Healthcheck = nil // the end of the command counts
	if _, err := warm("guest", "say", "err:no port", "exit:3"); err == nil || !strings.Contains(err.Error(), "it ended with exit code 3") {
		t.Errorf("a command that fails: %v", err)
	}
	b.said("no port")
	b.empty()
	if _, err := b.c.Snapshots.Get(t.Context(), "app"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a command that fails has a snapshot: %v", err)
	}
	if _, err := warm("guest", "say", "in the background"); err != nil {
		t.Error(err)
	}
	img.Healthcheck = health
	for range 2 { // the second one replaces the first one
		if _, err := warm("guest", "say", "up", "sleep:1h"); err != nil {
			t.Fatal(err)
		}
		b.empty()
	}
	s := b.n.CreateFrom("app", "one")
	processes, err := b.c.Processes.List(t.Context(), s.ID, false)
	if err != nil || len(processes) != 1 || processes[0].Command != "guest say up sleep:1h" {
		t.Errorf("processes are %+v: %v", processes, err)
	}
	if s.Lifecycle != nil && s.Lifecycle.IdleTimeoutMS != 0 || s.Cwd != "/srv" {
		t.Errorf("the sandbox has lifecycle %+v and directory %s", s.Lifecycle, s.Cwd)
	}
	if err := b.n.Machine.Destroy(harness.AsOwner, s.ID); err != nil {
		t.Fatal(err)
	}
	b.must("FROM box\nWORKDIR /srv\n", nil) // an image of the name of the snapshot
	if _, err := warm("guest", "say", "up"); api.CodeOf(err) != api.CodeNameTaken {
		t.Errorf("a name that an image has: %v", err)
	}
}

// TestDockerfileFails has builds that fail at several points. Neither a sandbox nor an image is left.
func TestDockerfileFails(t *testing.T) {
	b := newBuilds(t)
	b.file("a", "a")
	for text, want := range map[string]string{
		"FROM box\nRUN [\"guest\", \"say\", \"exit:3\"]\n":              "Dockerfile:2: RUN ended with exit code 3",
		"FROM box\nRUN [\"nothing\"]\n":                                 "Dockerfile:2: ",
		"FROM box\nRUN [\"guest\", \"say\", \"x\"]\nONBUILD RUN x\n":    "Dockerfile:3: ONBUILD",
		"FROM box\nRUN [\"guest\", \"say\", \"x\"]\nCOPY none /\n":      "Dockerfile:3: COPY: \"none\" is not in the build context",
		"FROM box\nCOPY a /\nCOPY --from=0 /none /\n":                   "Dockerfile:3: COPY --from=0 is no stage",
		"FROM box AS x\nRUN [\"none\"]\nFROM box\nCOPY --from=x / /\n":  "Dockerfile:2: ",
		"FROM box AS x\nFROM box\nCOPY --from=x /none /\n":              "Dockerfile:3: COPY --from=x: ",
		"FROM box\nCOPY --chown=nobody:none a /\n":                      "Dockerfile:2: ",
		"FROM box\nCOPY a /bin/guest/\n":                                "Dockerfile:2: ",
		"FROM box\nUSER none\nRUN [\"guest\", \"say\", \"x\"]\nCMD x\n": "Dockerfile:3: ",
	} {
		_, err := b.run(t.Context(), text, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if strings.Contains(text, "ONBUILD") && b.out.Len() > 0 {
			t.Errorf("a step ran before a line was refused:\n%s", b.out.String())
		}
		b.empty()
	}
	if _, err := b.c.Images.Get(t.Context(), "app"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a failed build made an image: %v", err)
	}
}

// TestDockerfileIsInterrupted cancels a build while a command runs.
func TestDockerfileIsInterrupted(t *testing.T) {
	b := newBuilds(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := b.run(ctx, "FROM box\nRUN [\"guest\", \"say\", \"runs\", \"sleep:1h\"]\n", func(r *build.Request) {
		r.Out = writerFunc(func(p []byte) {
			if string(p) == "runs\n" {
				cancel()
			}
		})
	})
	if api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("the error is %v", err)
	}
	b.empty()
	if images, err := b.c.Images.List(t.Context()); err != nil || len(images) != 1 {
		t.Errorf("%d images: %v", len(images), err)
	}
	if snaps, err := b.c.Snapshots.List(t.Context()); err != nil || len(snaps) != 0 {
		t.Errorf("%d snapshots: %v", len(snaps), err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

var _ io.Writer = writerFunc(nil)
