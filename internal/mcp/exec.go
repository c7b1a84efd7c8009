package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

// defaultWait and maxWait bound for how long a call waits for a command: programs of agents give up on a call
// after a minute or more.
const (
	defaultWait = 50
	maxWait     = 600
)

type execInput struct {
	Sandbox     string            `json:"sandbox" jsonschema:"id or name of the sandbox"`
	Command     string            `json:"command,omitempty" jsonschema:"command line for /bin/sh; leave it out to go on with a process"`
	Process     int               `json:"process,omitempty" minimum:"1" jsonschema:"number of a process that an earlier call has started: wait for more of its output, write to it or end it"`
	Cwd         string            `json:"cwd,omitempty" jsonschema:"absolute path of the directory to start in"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"variables of the command"`
	User        string            `json:"user,omitempty" jsonschema:"user that runs it, optionally :group; root in most images if absent"`
	Stdin       string            `json:"stdin,omitempty" jsonschema:"text for its standard input"`
	Interactive bool              `json:"interactive,omitempty" jsonschema:"keep standard input open, so that later calls with process can write to it"`
	Background  bool              `json:"background,omitempty" jsonschema:"return at once, for servers: the same as wait_s 0"`
	Wait        *int              `json:"wait_s,omitempty" minimum:"0" maximum:"600" jsonschema:"return after so many seconds with what there is, if the command has not ended by then (50 if absent); it goes on"`
	Timeout     int64             `json:"timeout_s,omitempty" minimum:"0" jsonschema:"kill the command after so many seconds; 0 is never"`
	Signal      string            `json:"signal,omitempty" jsonschema:"with process: send it this signal, such as TERM, INT or KILL"`
	After       int64             `json:"after,omitempty" minimum:"0" jsonschema:"with process: output from this position on, which is next of an earlier call"`
}

type execOutput struct {
	Process   int     `json:"process" jsonschema:"number of the process in the sandbox"`
	Running   bool    `json:"running" jsonschema:"it has not ended: call ramet_exec with process and after to go on"`
	ExitCode  *int    `json:"exit_code,omitempty" jsonschema:"how it ended; 128 and more: a signal"`
	Stdout    string  `json:"stdout" jsonschema:"standard output; the middle is left out if it is long"`
	Stderr    string  `json:"stderr" jsonschema:"standard error"`
	Truncated bool    `json:"truncated,omitempty" jsonschema:"some output was left out: the resource has the end of it, or have the command write to a file"`
	TimedOut  bool    `json:"timed_out,omitempty" jsonschema:"it was killed at its timeout"`
	Next      int64   `json:"next" jsonschema:"position after this output"`
	Duration  float64 `json:"duration_s,omitempty" jsonschema:"how long it ran"`
}

// Text implements output.
func (o execOutput) Text() string {
	var status string
	switch {
	case o.Running:
		status = fmt.Sprintf("[process %d goes on: ramet_exec with process %d and after %d waits for more, signal ends it]", o.Process, o.Process, o.Next)
	case o.TimedOut:
		status = "[killed at its timeout]"
	case o.ExitCode != nil && *o.ExitCode != 0:
		status = fmt.Sprintf("[exit code %d]", *o.ExitCode)
	case o.Stdout == "" && o.Stderr == "":
		status = "[exit code 0, no output]"
	}
	stderr := o.Stderr
	if stderr != "" && o.Stdout != "" {
		stderr = "[stderr]\n" + stderr
	}
	return lines(o.Stdout, stderr, status)
}

func (s *server) addExec(to *sdk.Server) {
	add(s, to, "exec", "Run a command in a sandbox",
		"Run a shell command in a sandbox and return its output and exit code. A command that takes longer than wait_s goes on, and the call returns its process: call again with process to wait for more, write to it, or end it with a signal. Start servers with background. Its processes are in every fork that is made later.",
		changes, execute)
}

func execute(ctx context.Context, c *call, in execInput) (out execOutput, err error) {
	if (in.Command == "") == (in.Process == 0) {
		return out, api.Invalid("command", "give either a command to run, or the process of an earlier call")
	}
	wait := defaultWait
	if in.Wait != nil {
		wait = *in.Wait
	}
	if in.Background {
		wait = 0
	}
	started := in.Process == 0
	if started {
		if in.Process, err = c.start(ctx, in); err != nil {
			return out, err
		}
	} else if err = c.control(ctx, in); err != nil {
		return out, err
	}
	out, err = c.follow(ctx, in, time.Duration(min(wait, maxWait))*time.Second)
	if started && ctx.Err() != nil {
		// Nobody has the number of the process.
		ctx, cancel := cleanUp(ctx)
		defer cancel()
		err = errors.Join(err, c.daemon.Processes.Signal(ctx, in.Sandbox, in.Process, api.SignalRequest{Signal: "KILL", Group: true}))
	}
	if err != nil {
		return out, err
	}
	if out.Truncated {
		c.links = append(c.links, &sdk.ResourceLink{
			URI: outputURI(in.Sandbox, in.Process), Name: "output", Title: "Output of process " + fmt.Sprint(in.Process), MIMEType: "text/plain",
		})
	} else if started && !out.Running {
		// All is told; the list of processes stays short.
		_ = c.daemon.Processes.Remove(ctx, in.Sandbox, in.Process)
	}
	return out, nil
}

// start starts the command of a call.
func (c *call) start(ctx context.Context, in execInput) (pid int, err error) {
	p, err := c.daemon.Processes.Start(ctx, in.Sandbox, api.StartRequest{
		Shell: in.Command, Env: in.Env, Cwd: in.Cwd, User: in.User, Stdin: in.Stdin != "" || in.Interactive, TimeoutMS: in.Timeout * 1000,
	})
	if err != nil {
		return 0, err
	}
	if in.Stdin != "" {
		err = c.write(ctx, in.Sandbox, p.PID, in.Stdin, !in.Interactive)
	}
	return p.PID, err
}

// write writes to a process. One that has ended meanwhile needs no input.
func (c *call) write(ctx context.Context, ref string, pid int, text string, end bool) error {
	err := c.daemon.Processes.Write(ctx, ref, pid, []byte(text), end)
	if api.CodeOf(err) == api.CodeWrongState {
		if p, perr := c.daemon.Processes.Get(ctx, ref, pid); perr == nil && p.Kept != nil && p.Kept.EndedAt != nil {
			return nil
		}
	}
	return err
}

// control does to a process what a call asks for.
func (c *call) control(ctx context.Context, in execInput) error {
	if in.Stdin != "" {
		if err := c.write(ctx, in.Sandbox, in.Process, in.Stdin, false); err != nil {
			return err
		}
	}
	if in.Signal != "" {
		return c.daemon.Processes.Signal(ctx, in.Sandbox, in.Process, api.SignalRequest{Signal: in.Signal, Group: true})
	}
	return nil
}

// follow returns the output of a process, until it ends or for a time.
func (c *call) follow(ctx context.Context, in execInput, wait time.Duration) (execOutput, error) {
	out := execOutput{Process: in.Process, Running: true, Next: in.After}
	var stdout, stderr bounded
	waiting := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	at, err := c.daemon.Processes.Output(waiting, in.Sandbox, in.Process, api.AttachRequest{From: in.After, Follow: wait > 0}, func(chunk api.Chunk) error {
		if chunk.Lost > 0 {
			out.Truncated = true
			out.Next = max(out.Next, chunk.Seq+chunk.Lost)
			return nil
		}
		to := &stdout
		if chunk.Stderr {
			to = &stderr
		}
		_, _ = to.Write(chunk.Data) // it fails never
		out.Next = chunk.Seq + int64(len(chunk.Data))
		c.progress(ctx, float64(out.Next), 0, lastLine(chunk.Data))
		return nil
	})
	if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
		return out, err
	}
	out.Stdout, out.Stderr = stdout.String(), stderr.String()
	out.Truncated = out.Truncated || stdout.left+stderr.left > 0
	if at != nil && at.Exit != nil {
		out.Running, out.Next = false, at.NextSeq
		out.ExitCode, out.TimedOut, out.Duration = &at.Exit.ExitCode, at.Exit.TimedOut, at.Exit.DurationMS/1000
	}
	return out, nil
}

func lastLine(data []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(data), "�"))
	line, _ := cut(text[strings.LastIndexByte(text, '\n')+1:], 200)
	return line
}

func outputURI(ref string, pid int) string {
	return fmt.Sprintf("ramet://%s/processes/%d/output", url.PathEscape(ref), pid)
}
