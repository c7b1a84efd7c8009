package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/wire"
)

// newTemplate starts a template for n sentries of a fake whose state has a generation of that name.
func newTemplate(ctx context.Context, t *testing.T, l *Launcher, n int, generation string) (*Template, error) {
	t.Helper()
	if l.nsReason != "" {
		t.Skipf("sentries have no namespaces: %s", l.nsReason)
	}
	f, err := NewFile("state")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return l.NewTemplate(ctx, n, cgroup.Limits{}, &wire.Decode{Generations: []string{generation}}, []*os.File{f, f, f})
}

func TestTemplate(t *testing.T) {
	ctx := t.Context()
	l := newLauncher(t, normal)
	tmpl, err := newTemplate(ctx, t, l, 2, "gen")
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	for range 2 {
		s, err := tmpl.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Kill()
		var info wire.Info
		if _, err := s.Call(ctx, &wire.Call{Op: wire.OpInfo}, &info); err != nil || !s.Decoded() {
			t.Errorf("info: %v; it has the state: %t", err, s.Decoded())
		}
	}
	if s := start(t, l); s.Decoded() {
		t.Error("a blank sentry has a state")
	}
	pid := tmpl.zygote.process.Pid
	tmpl.Close()
	tmpl.Close()
	if alive(pid) {
		t.Error("the template lives")
	}
	if _, err := tmpl.Start(ctx); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("start after the end: %v", err)
	}
}

// TestUsersOfTemplates has templates given users of the zygote that nobody else is given, and sentries those of the
// template.
func TestUsersOfTemplates(t *testing.T) {
	l := newLauncher(t, normal)
	if why := l.Missing()["own_user"]; why != "" {
		t.Skipf("sentries have no users of their own: %s", why)
	}
	start(t, l)
	tmpl, err := newTemplate(t.Context(), t, l, 2, "gen")
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	if z := l.zygotes.zygote; z.taken != 1+tmpl.zygote.users || tmpl.zygote.users != 1+2 {
		t.Errorf("%d users were taken, the template has %d", z.taken, tmpl.zygote.users)
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", tmpl.zygote.process.Pid))
	if err != nil || !strings.Contains(string(argv), "users=3 from 2") {
		t.Errorf("the zygote was asked for %q, %v", argv, err)
	}
	for range tmpl.zygote.users - 1 {
		s, err := tmpl.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Kill()
	}
	if log, err := os.ReadFile(tmpl.zygote.log); err != nil || string(log) != "user 1\nuser 2\n" {
		t.Errorf("%q, %v", log, err)
	}
	if _, err := tmpl.Start(t.Context()); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("without users: %v", err)
	}
}

// TestTemplatesThatFail leave nothing behind: newLauncher checks the directory.
func TestTemplatesThatFail(t *testing.T) {
	l := newLauncher(t, normal)
	if _, err := newTemplate(t.Context(), t, l, 1, damaged); api.CodeOf(err) != api.CodeCorrupt || !strings.Contains(err.Error(), "with 3 files") {
		t.Errorf("damaged: %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience/30, errors.New("enough"))
	defer cancel()
	if _, err := newTemplate(ctx, t, l, 1, endless); err == nil {
		t.Error("endless: it came to an end")
	}
	tmpl, err := newTemplate(t.Context(), t, l, 4, loadsDies)
	if err != nil {
		t.Fatal(err)
	}
	defer tmpl.Close()
	s, err := tmpl.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	if _, err := tmpl.Start(t.Context()); err == nil || !strings.Contains(err.Error(), crashLine) {
		t.Errorf("it dies: %v", err)
	}
	if _, err := tmpl.Start(t.Context()); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("then: %v", err)
	}
	if _, err := s.Call(t.Context(), &wire.Call{Op: wire.OpInfo}, nil); err != nil {
		t.Errorf("its first sentry: %v", err)
	}
	tmpl.Close()
	if _, err := os.Stat(tmpl.process.logPath()); !os.IsNotExist(err) {
		t.Errorf("its log: %v", err)
	}
}
