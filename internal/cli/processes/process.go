package processes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/describe"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
	"ramet.dev/ramet/internal/httpwire"
)

// PsCommand returns the ps command.
func (g *Group) PsCommand() *cobra.Command {
	var all, whole, quiet bool
	cmd := &cobra.Command{
		Use: "ps SBX", Short: "List the processes in a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			ps, err := c.Processes.List(ctx, args[0], all)
			if err != nil {
				return err
			}
			pids := console.IDsOf(ps, func(p *api.Process) string { return strconv.Itoa(p.PID) })
			return g.ShowIDs(ps, quiet, pids, processTable(ps, time.Now(), whole))
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include background processes that have ended")
	cmd.Flags().BoolVar(&whole, "no-trunc", false, "do not cut long commands")
	values.QuietOf(cmd.Flags(), &quiet, "process ids")
	return cmd
}

func processTable(ps []api.Process, now time.Time, whole bool) func(io.Writer) error {
	var rows [][]string
	for _, p := range ps {
		kind, exit := "", ""
		if k := p.Kept; k != nil {
			kind = "kept"
			if k.Terminal {
				kind = "terminal"
			}
			if k.Inherited {
				kind += ", inherited"
			}
			if k.Exit != nil {
				exit = strconv.Itoa(k.Exit.ExitCode)
			}
		}
		command := p.Command
		if !whole {
			command = describe.ShortCommand(command)
		}
		rows = append(rows, []string{
			strconv.Itoa(p.PID), strconv.Itoa(p.PPID), strconv.Itoa(p.UID), strconv.Itoa(p.Threads), p.State, fmt.Sprintf("%.2f s", p.CPUSeconds), console.MiB(p.MemoryMiB),
			console.Age(p.StartedAt, now), kind, exit, command,
		})
	}
	return console.Table([]string{"PID", "PPID", "UID", "THREADS", "STATE", "CPU", "MEMORY", "AGE", "OUTPUT", "EXIT", "COMMAND"}, rows)
}

// KillCommand returns the kill command.
func (g *Group) KillCommand() *cobra.Command {
	var req api.SignalRequest
	cmd := &cobra.Command{
		Use: "kill SBX PID…", Short: "Send a signal to processes in a sandbox", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: g.CompleteProcesses(math.MaxInt, false),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			pids := make([]int, len(args)-1)
			for i, arg := range args[1:] {
				var err error
				if pids[i], err = values.ParsePID(arg); err != nil {
					return err
				}
			}
			return g.signalEach(pids, req, func(pid int) error { return c.Processes.Signal(ctx, args[0], pid, req) })
		}),
	}
	cmd.Flags().StringVarP(&req.Signal, "signal", "s", "TERM", "name or number of the signal")
	cmd.Flags().BoolVarP(&req.Group, "group", "g", false, "send it to all processes of the group")
	return cmd
}

// signalled is the JSON of a process that got a signal, or should have.
type signalled struct {
	PID int `json:"pid"`
	api.SignalRequest
	Error *api.Error `json:"error,omitempty"`
}

// signalEach signals all processes that it can, and returns the errors. The code of the first one
// decides the exit code. If some processes got the signal, JSON lists all.
func (g *Group) signalEach(pids []int, req api.SignalRequest, signal func(int) error) error {
	list, errs, failed := make([]signalled, len(pids)), make([]error, len(pids)), 0
	for i, pid := range pids {
		list[i] = signalled{PID: pid, SignalRequest: req}
		if errs[i] = signal(pid); errs[i] != nil {
			list[i].Error = api.AsError(errs[i])
			failed++
		}
	}
	same := func(x, y error) bool { return x != nil && y != nil && x.Error() == y.Error() } // such as for a missing sandbox
	err := errors.Join(slices.CompactFunc(errs, same)...)
	if !g.JSON || failed == len(pids) {
		return err
	}
	if werr := g.WriteJSON(list); werr != nil || err == nil {
		return werr
	}
	return session.ExitError(api.CodeOf(err).ExitCode())
}

// LogsCommand returns the logs command.
func (g *Group) LogsCommand() *cobra.Command {
	var req api.AttachRequest
	var times bool
	cmd := &cobra.Command{
		Use: "logs SBX [PID]", Short: "Show the output of background processes", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: g.CompleteProcesses(1, true),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				if req.From != 0 {
					return api.Invalid("since", "sequence numbers are of one process: give its id")
				}
				return g.allLogs(ctx, c, args[0], req.Follow, times)
			}
			pid, err := values.ParsePID(args[1])
			if err != nil {
				return err
			}
			_, err = c.Processes.Output(ctx, args[0], pid, req, g.logWriter(times))
			return err
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "follow the output until the process ends; of all processes, until interrupted")
	f.Int64Var(&req.From, "since", 0, "start at this sequence number, which counts bytes; -1 for new output only")
	f.BoolVarP(&times, "timestamps", "t", false, "print the time and the sequence number before each piece")
	return cmd
}

// logLine is the JSON of a piece of output.
type logLine struct {
	Stream string `json:"stream"`
	httpwire.Chunk
}

// lostLine is the JSON of lost output.
type lostLine struct {
	Lost httpwire.Lost `json:"lost"`
}

func (g *Group) logWriter(times bool) func(api.Chunk) error {
	return func(c api.Chunk) error {
		if g.JSON {
			return json.NewEncoder(g.Out).Encode(lineOf(c))
		}
		if times && c.Lost == 0 {
			if _, err := io.WriteString(g.StreamOf(c), stampOf(c)); err != nil {
				return err
			}
		}
		return g.WriteChunk(c)
	}
}

// stampOf returns the prefix of a piece with --timestamps.
func stampOf(c api.Chunk) string {
	return fmt.Sprintf("%s %d ", c.Time.UTC().Format(time.RFC3339Nano), c.Seq)
}

func lineOf(c api.Chunk) any {
	if c.Lost > 0 {
		return lostLine{httpwire.Lost{Seq: c.Seq, Bytes: c.Lost}}
	}
	stream := httpwire.EventStdout
	if c.Stderr {
		stream = httpwire.EventStderr
	}
	return logLine{stream, httpwire.NewChunk(c.Data, c.Seq, c.Time)}
}
