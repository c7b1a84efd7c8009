package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
)

const (
	// exitNotRunning is the exit code of status when no daemon runs, as that of systemctl.
	exitNotRunning = ExitError(3)
	// stopTimeout is how long a daemon may take to end: operations under way get ten seconds.
	stopTimeout = 20 * time.Second
)

// daemonStatus is the JSON of status.
type daemonStatus struct {
	Running   bool              `json:"running"`
	Version   string            `json:"version,omitempty"`
	PID       int               `json:"pid,omitempty"`
	Status    string            `json:"status,omitempty"`
	Address   string            `json:"address,omitempty"`
	Sandboxes map[api.State]int `json:"sandboxes,omitempty"`
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show whether the daemon runs, and what it has", Args: cobra.NoArgs,
		Long: "Show whether the daemon runs, and how many sandboxes it has. It starts no daemon. The exit code is 3 if none runs.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showStatus(cmd.Context()) },
	}
}

func (a *app) showStatus(ctx context.Context) error {
	c, h, err := a.Reach(ctx, false)
	if err != nil {
		if a.Host() != "" || !client.NobodyListens(err) {
			return err
		}
		if err := a.Show(daemonStatus{}, console.Line("no daemon is running: the next command starts one")); err != nil {
			return err
		}
		return exitNotRunning
	}
	defer c.Close()
	st := daemonStatus{Running: true, Version: h.Version, PID: h.PID, Status: h.Status, Address: a.Host(), Sandboxes: map[api.State]int{}}
	list, err := c.Sandboxes.List(ctx, api.ListFilter{})
	if err != nil {
		return err
	}
	for _, s := range list {
		st.Sandboxes[s.State]++
	}
	pairs := []string{"daemon", h.Status, "version", h.Version, "pid", strconv.Itoa(h.PID), "address", st.Address, "sandboxes", strconv.Itoa(len(list))}
	for _, state := range slices.Sorted(maps.Keys(st.Sandboxes)) {
		pairs = append(pairs, "  "+string(state), strconv.Itoa(st.Sandboxes[state]))
	}
	return a.Show(st, console.Pairs(pairs...))
}

func (a *app) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop the daemon; its sandboxes run on", Args: cobra.NoArgs,
		SuggestFor: []string{"quit", "shutdown"},
		Long:       "Stop the daemon of this user. Operations under way get ten seconds to end. Sandboxes run on, and the next daemon goes on with them; 'ramet rm' ends sandboxes.",
		RunE:       func(cmd *cobra.Command, _ []string) error { return a.stopDaemon(cmd.Context()) },
	}
}

func (a *app) stopDaemon(ctx context.Context) error {
	if host := a.Host(); host != "" {
		return api.Invalid("host", "the daemon at %s can be stopped on its own machine only", host)
	}
	c, h, err := a.Reach(ctx, false)
	if err != nil {
		if client.NobodyListens(err) {
			return a.Show(daemonStatus{}, console.Line("no daemon is running"))
		}
		return err
	}
	c.Close()
	process, err := os.FindProcess(h.PID)
	if err != nil {
		return fmt.Errorf("stop daemon: %w", err)
	}
	defer process.Release()
	if err := process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop daemon of process %d: %w", h.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := awaitEnd(ctx, process); err != nil {
		return api.Errorf(api.CodeTimeout, "the daemon of process %d has not ended within %v: kill -9 %d ends it", h.PID, stopTimeout, h.PID)
	}
	return a.Show(daemonStatus{PID: h.PID, Version: h.Version}, console.Line(fmt.Sprintf("stopped the daemon of process %d; sandboxes run on", h.PID)))
}

// awaitEnd waits until a process, which is no child of this one, has ended.
func awaitEnd(ctx context.Context, process *os.Process) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for process.Signal(unix.Signal(0)) == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
