package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestTreeColours colours states on a terminal, for users who want that, and nowhere else.
func TestTreeColours(t *testing.T) {
	socket := apitest.Serve(t, fakeService())
	plain := []string{
		`^` + baseID + ` base \(running\)$`, `^├── ` + kidID + ` kid \(paused\)$`, `^│   └── ` + newID + ` \(running\)$`,
		`^└── ` + snapID + ` clean \(snapshot, ready\)$`, `^    └── ` + ownSnapID + ` \(good\) \(snapshot, uploading\)$`,
	}
	x := startOnTerminal(t, socket, terminalOptions{}, "tree")
	wantScreen(t, x.ends(0), plain...)
	for _, want := range []string{"kid (\x1b[33mpaused\x1b[0m)", "(snapshot, \x1b[32mready\x1b[0m)", "(snapshot, \x1b[36muploading\x1b[0m)"} {
		if !strings.Contains(x.bytes(), want) {
			t.Errorf("it wrote %q without %q", x.bytes(), want)
		}
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		x = startOnTerminal(t, socket, terminalOptions{env: []string{env}}, "tree")
		wantScreen(t, x.ends(0), plain...)
		if raw := x.bytes(); strings.Contains(raw, "\x1b[") {
			t.Errorf("%s: it wrote %q", env, raw)
		}
	}
	var stdout bytes.Buffer
	startOnTerminal(t, socket, terminalOptions{stdout: &stdout}, "tree").ends(0)
	if strings.Contains(stdout.String(), "\x1b") || !strings.Contains(stdout.String(), "kid (paused)") {
		t.Errorf("it printed %q", stdout.String())
	}
}

// growing is a tree that has more children whenever a test says so.
type growing struct {
	mu       sync.Mutex
	children int
	happened chan struct{}
}

func (g *growing) grow(by int) {
	g.mu.Lock()
	g.children += by
	g.mu.Unlock()
	g.happened <- struct{}{}
}

func (g *growing) service() *apitest.Service {
	svc := fakeService()
	g.happened = make(chan struct{})
	svc.TreeFunc = func(context.Context, string) ([]*api.TreeNode, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		root := &api.TreeNode{ID: baseID, Name: "base", Kind: "sandbox", State: "running"}
		for i := range g.children {
			root.Children = append(root.Children, &api.TreeNode{ID: fmt.Sprintf("sbx_%016d", i), Name: "try", Kind: "sandbox", State: "hibernated"})
		}
		return []*api.TreeNode{root}, nil
	}
	svc.EventsFunc = func(ctx context.Context, _ api.EventRequest, began func(), each func(api.Event) error) error {
		began()
		for seq := int64(1); ; seq++ {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-g.happened:
			}
			if err := each(api.Event{Seq: seq, Kind: api.EventCreated, SandboxID: baseID}); err != nil {
				return err
			}
		}
	}
	return svc
}

// TestTreeWatch draws a tree that changes, on terminals of several sizes, until it is
// interrupted. The terminal is as it was then.
func TestTreeWatch(t *testing.T) {
	for _, cols := range terminalWidths {
		g := &growing{}
		x := startOnTerminal(t, apitest.Serve(t, g.service()), terminalOptions{cols: cols, rows: 12}, "tree", "--watch")
		x.sees(`^TREE +STATE`)
		x.sees(`^` + baseID + ` (ba.*|… +)running`)
		g.grow(3)
		x.sees(`^└── sbx_0{15}2?(…| ).*hib`)
		g.grow(20)
		x.sees(`^… and 14 more$`)
		lines, _ := x.lines()
		if len(lines) != 12 || strings.Count(strings.Join(lines, "\n"), "TREE") != 1 {
			t.Errorf("the screen shows\n%s", strings.Join(lines, "\n"))
		}
		x.resize(100, 30)
		x.sees(`^` + baseID + ` base +running +12\.5 MiB +step=1 x=y$`)
		x.sees(`^└── sbx_0{14}22 try +hibernated$`)
		x.types("\x03")
		lines = x.ends(130)
		wantScreen(t, lines, `ramet: interrupted$`)
	}
	var stdout, stderr bytes.Buffer
	startOnTerminal(t, apitest.Serve(t, fakeService()), terminalOptions{stdout: &stdout, stderr: &stderr}, "tree", "--watch").ends(2)
	if stdout.Len() > 0 || !strings.Contains(stderr.String(), "standard output is no terminal") {
		t.Errorf("it printed %q and said %q", stdout.String(), stderr.String())
	}
}
