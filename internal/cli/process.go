package cli

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
	"ramet.dev/ramet/internal/httpwire"
)

func (a *app) psCommand() *cobra.Command {
	var all, whole, quiet bool
	cmd := &cobra.Command{
		Use: "ps SBX", Short: "List the processes in a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeFirst(a.completeSandboxes),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			ps, err := c.Processes.List(ctx, args[0], all)
			if err != nil {
				return err
			}
			pids := idsOf(ps, func(p *api.Process) string { return strconv.Itoa(p.PID) })
			return a.showIDs(ps, quiet, pids, processTable(ps, time.Now(), whole))
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also background processes that have ended")
	cmd.Flags().BoolVar(&whole, "no-trunc", false, "show long commands whole")
	quietOf(cmd.Flags(), &quiet, "process ids")
	return cmd
}

// maxCommand is how many characters of a command a table has room for: interpreters
// of contexts, for one, have programs among their arguments.
const maxCommand = 80

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
			command = shortCommand(command)
		}
		rows = append(rows, []string{
			strconv.Itoa(p.PID), strconv.Itoa(p.PPID), strconv.Itoa(p.UID), strconv.Itoa(p.Threads), p.State, fmt.Sprintf("%.2f s", p.CPUSeconds), mib(p.MemoryMiB),
			age(p.StartedAt, now), kind, exit, command,
		})
	}
	return table([]string{"PID", "PPID", "UID", "THREADS", "STATE", "CPU", "MEMORY", "AGE", "OUTPUT", "EXIT", "COMMAND"}, rows)
}

func shortCommand(command string) string {
	if r := []rune(command); len(r) > maxCommand {
		return string(r[:maxCommand-1]) + "…"
	}
	return command
}

func (a *app) killCommand() *cobra.Command {
	var req api.SignalRequest
	cmd := &cobra.Command{
		Use: "kill SBX PID…", Short: "Send a signal to processes in a sandbox", Args: cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeProcesses(math.MaxInt, false),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			pids := make([]int, len(args)-1)
			for i, arg := range args[1:] {
				var err error
				if pids[i], err = parsePID(arg); err != nil {
					return err
				}
			}
			return a.signalEach(pids, req, func(pid int) error { return c.Processes.Signal(ctx, args[0], pid, req) })
		}),
	}
	cmd.Flags().StringVarP(&req.Signal, "signal", "s", "TERM", "name or number")
	cmd.Flags().BoolVarP(&req.Group, "group", "g", false, "to all processes of its group")
	return cmd
}

// signalled is a process that was to get a signal, as JSON says it.
type signalled struct {
	PID int `json:"pid"`
	api.SignalRequest
	Error *api.Error `json:"error,omitempty"`
}

// signalEach signals all it can and returns what went wrong, the first code of which
// decides the exit code. If some got the signal, JSON says which.
func (a *app) signalEach(pids []int, req api.SignalRequest, signal func(int) error) error {
	list, errs, failed := make([]signalled, len(pids)), make([]error, len(pids)), 0
	for i, pid := range pids {
		list[i] = signalled{PID: pid, SignalRequest: req}
		if errs[i] = signal(pid); errs[i] != nil {
			list[i].Error = api.AsError(errs[i])
			failed++
		}
	}
	same := func(x, y error) bool { return x != nil && y != nil && x.Error() == y.Error() } // as of a sandbox that is not there
	err := errors.Join(slices.CompactFunc(errs, same)...)
	if !a.json || failed == len(pids) {
		return err
	}
	if werr := a.writeJSON(list); werr != nil || err == nil {
		return werr
	}
	return ExitError(api.CodeOf(err).ExitCode())
}

func parsePID(arg string) (int, error) {
	pid, err := strconv.Atoi(arg)
	if err != nil || pid < 1 {
		return 0, api.Invalid("pid", "%q is not a process id, as ramet ps shows them", arg)
	}
	return pid, nil
}

func (a *app) logsCommand() *cobra.Command {
	var req api.AttachRequest
	var times bool
	cmd := &cobra.Command{
		Use: "logs SBX [PID]", Short: "Show what background processes wrote", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeProcesses(1, true),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 1 {
				if req.From != 0 {
					return api.Invalid("since", "sequence numbers are of one process: give its id")
				}
				return a.allLogs(ctx, c, args[0], req.Follow, times)
			}
			pid, err := parsePID(args[1])
			if err != nil {
				return err
			}
			_, err = c.Processes.Output(ctx, args[0], pid, req, a.logWriter(times))
			return err
		}),
	}
	f := cmd.Flags()
	f.BoolVarP(&req.Follow, "follow", "f", false, "until the process ends; of all processes, until it is interrupted")
	f.Int64Var(&req.From, "since", 0, "from this sequence number on, which is a number of bytes; -1 for what is written from now on")
	f.BoolVarP(&times, "timestamps", "t", false, "put the time and the sequence number before each piece")
	return cmd
}

// logLine is what logs prints for each piece with --json.
type logLine struct {
	Stream string `json:"stream"`
	httpwire.Chunk
}

// lostLine is what it prints where pieces are missing.
type lostLine struct {
	Lost httpwire.Lost `json:"lost"`
}

func (a *app) logWriter(times bool) func(api.Chunk) error {
	return func(c api.Chunk) error {
		if a.json {
			return json.NewEncoder(a.Out).Encode(lineOf(c))
		}
		if times && c.Lost == 0 {
			if _, err := io.WriteString(a.streamOf(c), stampOf(c)); err != nil {
				return err
			}
		}
		return a.writeChunk(c)
	}
}

// stampOf is what --timestamps puts before a piece.
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

func (a *app) streamOf(c api.Chunk) io.Writer {
	if c.Stderr {
		return a.Err
	}
	return a.Out
}

// writeChunk passes on a piece of output, or says that one is missing.
func (a *app) writeChunk(c api.Chunk) error {
	if c.Lost > 0 {
		_, err := fmt.Fprintf(a.Err, "ramet: %d bytes of output from %d on are not kept any more\n", c.Lost, c.Seq)
		return err
	}
	_, err := a.streamOf(c).Write(c.Data)
	return err
}
