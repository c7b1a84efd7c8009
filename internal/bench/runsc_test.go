package bench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/bench/speed"
)

// fakeRunsc is a program that writes down how it was called. A container is a
// file; restore fails without a checkpoint, and delete without a container.
const fakeRunsc = `#!/bin/sh
echo "$*" >>"$CALLS"
for last; do :; done
while [ "${1#--}" != "$1" ]; do shift; done
case $1 in
checkpoint) for a; do case $a in --image-path=*) echo state >"${a#*=}/checkpoint.img" ;; esac; done ;;
restore) for a; do case $a in --image-path=*) test -s "${a#*=}/checkpoint.img" || { echo "no checkpoint" >&2; exit 1; } ;; esac; done
	test -z "$FAIL" || { echo first; echo "restore refused" >&2; exit 128; }
	touch "$BOXES/$last" ;;
run) touch "$BOXES/$last" ;;
delete) rm "$BOXES/$last" ;;
exec) case "$*" in */root/ask*) cat >/dev/null; echo 33554432 ;; esac ;;
esac
`

func fake(t *testing.T) (r *runsc, calls func() string, boxes string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "runsc")
	if err := os.WriteFile(path, []byte(fakeRunsc), 0o755); err != nil {
		t.Fatal(err)
	}
	boxes = filepath.Join(dir, "boxes")
	if err := os.Mkdir(boxes, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CALLS", filepath.Join(dir, "calls"))
	t.Setenv("BOXES", boxes)
	t.Setenv("TMPDIR", dir)
	r, err := newRunsc(path, fast, &speed.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() string {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), r.dir, "DIR")
	}, boxes
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestRunscFork(t *testing.T) {
	r, calls, boxes := fake(t)
	ctx := t.Context()
	if err := r.start(ctx, runscSourceID, "run"); err != nil {
		t.Fatal(err)
	}
	s, err := r.fork(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	if s[pauseMS] <= 0 || s[returnMS] <= 0 || s[firstExecMS] <= 0 || s[allReadyMS] < s[firstExecMS] || s[allReadyMS] < s[returnMS] || s[cpuMS] <= 0 {
		t.Errorf("sample is %v", s)
	}
	const global = "--root=DIR/state --platform=systrap --overlay2=root:memory --network=none --ignore-cgroups "
	for _, want := range []string{
		"run --detach --bundle=DIR/bundle source\n",
		"checkpoint --leave-running --image-path=DIR/checkpoint source\n",
		"restore --image-path=DIR/checkpoint --detach --bundle=DIR/bundle copy-001\n",
		"exec copy-002 /bin/true\n",
		"exec copy-002 /root/ask 8000\n",
		"delete --force copy-000\n",
	} {
		if !strings.Contains(calls(), global+want) {
			t.Errorf("runsc was not called with %q:\n%s", want, calls())
		}
	}
	if got := entries(t, boxes); len(got) != 1 || got[0] != runscSourceID {
		t.Errorf("containers are %v, not the source", got)
	}
	if err := r.close(ctx); err != nil {
		t.Error(err)
	}
	if got := entries(t, boxes); len(got) != 0 {
		t.Errorf("containers are left: %v", got)
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestRunscFails(t *testing.T) {
	r, _, boxes := fake(t)
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.start(ctx, runscSourceID, "run"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIL", "1")
	if _, err := r.fork(ctx, 1); err == nil || !strings.HasSuffix(err.Error(), "runsc restore: exit status 128: restore refused") {
		t.Errorf("error is %v", err)
	}
	cancel()
	// The copy never came to be, which is all there is to complain about.
	if err := r.close(ctx); err == nil || !strings.Contains(err.Error(), "copy-000") {
		t.Errorf("error is %v", err)
	}
	if got := entries(t, boxes); len(got) != 0 {
		t.Errorf("containers are left: %v", got)
	}
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestBundle(t *testing.T) {
	r, _, _ := fake(t)
	if err := os.Mkdir(filepath.Join(r.rootfs(), "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.writeBundle(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.bundle(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Process struct{ Args []string }
		Root    struct{ Path string }
	}
	if err := json.Unmarshal(text, &config); err != nil || config.Root.Path != "rootfs" || strings.Join(config.Process.Args, " ") != "python3 /root/agent.py 8000" {
		t.Errorf("%+v, %v", config, err)
	}
	if fi, err := os.Stat(filepath.Join(r.rootfs(), "root/ask")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := r.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCannotCompare(t *testing.T) {
	for path, want := range map[string]string{"": "no runsc was given", "/does/not/exist": "no such file"} {
		b := &bench{opts: Options{Runsc: path}}
		if reason, err := cannotCompare(b.opts.Runsc); err != nil || !strings.Contains(reason, want) {
			t.Errorf("%q: %q, %v", path, reason, err)
		}
	}
	if os.Geteuid() == 0 {
		return // below is for ordinary users
	}
	b := &bench{opts: Options{Runsc: "/bin/sh"}}
	if reason, err := cannotCompare(b.opts.Runsc); err != nil || !strings.Contains(reason, "needs root") {
		t.Errorf("%q, %v", reason, err)
	}
}
