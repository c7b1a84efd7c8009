package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

const (
	// treeEvery is how often a tree is drawn again though nothing happened: memory changes.
	treeEvery = 2 * time.Second
	// treePause is the shortest time between two drawings.
	treePause = 100 * time.Millisecond
)

// watch draws the tree again whenever something happens, until ctx ends.
func (t *tree) watch(ctx context.Context, c *client.Client) error {
	if t.json {
		return api.Invalid("watch", "a drawing has no JSON output: 'ramet events --follow --json' has what happens")
	}
	if !isTerminal(t.Out) || os.Getenv("TERM") == "dumb" {
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
			default: // it is to be drawn again anyway
			}
			return nil
		})
	})
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, syscall.SIGWINCH)
	defer signal.Stop(sizes)

	s := &screen{out: t.Out.(*os.File)}
	defer s.close()
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

func (t *tree) draw(ctx context.Context, c *client.Client, s *screen) error {
	roots, err := t.get(ctx, c)
	if err != nil {
		return err
	}
	sandboxes, err := c.Sandboxes.List(ctx, api.ListFilter{}, t.view.options()...)
	if err != nil {
		return err
	}
	metadata := map[string]string{}
	for _, sb := range sandboxes {
		metadata[sb.ID] = joinPairs(sb.Metadata)
	}
	cols, rows := s.size()
	all := []cells{{[]string{"TREE", "STATE", "PRIVATE", "METADATA"}, []string{bold, bold, bold, bold}}}
	for _, l := range t.lines(roots) {
		if l.node == nil {
			all = append(all, cells{[]string{l.text, "", "", ""}, []string{bold, "", "", ""}})
			continue
		}
		private := ""
		if len(all) < rows { // it is shown
			private = t.private(ctx, c, l.node)
		}
		all = append(all, cells{
			[]string{l.text, l.kind() + printable(l.node.State), private, printable(metadata[l.node.ID])},
			[]string{"", stateColour(l.node.State), "", faint},
		})
	}
	return s.draw(drawing(all, cols, rows, t.colours))
}

// private returns what memory a sandbox has for itself, and nothing for what has none or has
// gone meanwhile.
func (t *tree) private(ctx context.Context, c *client.Client, node *api.TreeNode) string {
	if node.State != string(api.StateRunning) && node.State != string(api.StatePaused) {
		return ""
	}
	st, err := c.Sandboxes.Stats(ctx, node.ID)
	if err != nil {
		return ""
	}
	return mib(st.Memory.PrivateMiB)
}

// screen is the other screen of a terminal, without a cursor, from the first drawing on.
type screen struct {
	out  *os.File
	open bool
}

// size returns how many columns and rows there are.
func (s *screen) size() (cols, rows int) {
	cols, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}

func (s *screen) draw(lines []string) error {
	const begin, home, clearLine, clearRest = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[K", "\x1b[J"
	text := home + strings.Join(lines, clearLine+"\r\n") + clearLine + clearRest
	if !s.open {
		text, s.open = begin+text, true
	}
	if _, err := s.out.WriteString(text); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// close gives the terminal back as it was.
func (s *screen) close() {
	if s.open {
		_, _ = s.out.WriteString("\x1b[?25h\x1b[?1049l") // the terminal may be gone
	}
}
