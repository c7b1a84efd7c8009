package sandboxes

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
)

const (
	// treeEvery is the time between drawings without events, because memory changes.
	treeEvery = 2 * time.Second
	// treePause is the shortest time between drawings.
	treePause = 100 * time.Millisecond
)

// watch draws the tree on every event until ctx ends.
func (t *tree) watch(ctx context.Context, c *client.Client) error {
	if t.JSON {
		return api.Invalid("watch", "a drawing has no JSON output: 'ramet events --follow --json' has what happens")
	}
	if !console.IsTerminal(t.Out) || os.Getenv("TERM") == "dumb" {
		return api.Invalid("watch", "standard output is no terminal that can be drawn on: 'ramet events --follow' prints what happens")
	}
	ctx, cancel := context.WithCancel(ctx)
	var follower sync.WaitGroup
	defer follower.Wait()
	defer cancel()
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	follower.Go(func() {
		ended <- c.Events(ctx, api.EventRequest{Since: -1, Follow: true}, func(api.Event) error {
			select {
			case changed <- struct{}{}:
			default: // a drawing is due already
			}
			return nil
		})
	})
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	defer signal.Stop(sizes)

	s := &console.Screen{Out: t.Out.(*os.File)}
	defer s.Close()
	for {
		if err := t.draw(ctx, c, s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-changed:
		case <-sizes:
		case <-time.After(treeEvery):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(treePause):
		}
	}
}

func (t *tree) draw(ctx context.Context, c *client.Client, s *console.Screen) error {
	roots, err := t.get(ctx, c)
	if err != nil {
		return err
	}
	sandboxes, err := c.Sandboxes.List(ctx, api.ListFilter{}, t.view.Options()...)
	if err != nil {
		return err
	}
	metadata := map[string]string{}
	for _, sb := range sandboxes {
		metadata[sb.ID] = describe.JoinPairs(sb.Metadata)
	}
	cols, rows := s.Size()
	all := []console.Cells{{Text: []string{"TREE", "STATE", "PRIVATE", "METADATA"}, Colours: []string{console.Bold, console.Bold, console.Bold, console.Bold}}}
	for _, l := range t.lines(roots) {
		if l.node == nil {
			all = append(all, console.Cells{Text: []string{l.text, "", "", ""}, Colours: []string{console.Bold, "", "", ""}})
			continue
		}
		private := ""
		if len(all) < rows { // the line fits on the screen
			private = t.private(ctx, c, l.node)
		}
		all = append(all, console.Cells{
			Text:    []string{l.text, l.kind() + console.Printable(l.node.State), private, console.Printable(metadata[l.node.ID])},
			Colours: []string{"", stateColour(l.node.State), "", console.Faint},
		})
	}
	return s.Draw(console.Drawing(all, cols, rows, t.colours))
}

// private returns the private memory of a sandbox. It is empty for snapshots and for sandboxes
// without a process.
func (t *tree) private(ctx context.Context, c *client.Client, node *api.TreeNode) string {
	if node.State != string(api.StateRunning) && node.State != string(api.StatePaused) {
		return ""
	}
	st, err := c.Sandboxes.Stats(ctx, node.ID)
	if err != nil {
		return ""
	}
	return console.MiB(st.Memory.PrivateMiB)
}
