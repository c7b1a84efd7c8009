package envd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// Messages of the service process.Process. Bytes are in base64.
type (
	processConfig struct {
		Cmd  string            `json:"cmd"`
		Args []string          `json:"args,omitempty"`
		Envs map[string]string `json:"envs,omitempty"`
		Cwd  *string           `json:"cwd,omitempty"`
	}
	ptySize struct {
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	}
	pty struct {
		Size *ptySize `json:"size,omitempty"`
	}
	startRequest struct {
		Process processConfig `json:"process"`
		Pty     *pty          `json:"pty,omitempty"`
		Stdin   *bool         `json:"stdin,omitempty"`
		Tag     string        `json:"tag,omitempty"`
	}
	processSelector struct {
		PID int    `json:"pid,omitempty"`
		Tag string `json:"tag,omitempty"`
	}
	selected struct {
		Process processSelector `json:"process"`
	}
	processInput struct {
		Stdin []byte `json:"stdin,omitempty"`
		Pty   []byte `json:"pty,omitempty"`
	}
	inputRequest struct {
		Process processSelector `json:"process"`
		Input   processInput    `json:"input"`
	}
	streamInputRequest struct {
		Start     *selected     `json:"start,omitempty"`
		Data      *inputRequest `json:"data,omitempty"`
		Keepalive *struct{}     `json:"keepalive,omitempty"`
	}
	signalRequest struct {
		Process processSelector `json:"process"`
		Signal  any             `json:"signal"`
	}
	updateRequest struct {
		Process processSelector `json:"process"`
		Pty     *pty            `json:"pty,omitempty"`
	}
	startEvent struct {
		PID int `json:"pid"`
	}
	endEvent struct {
		ExitCode int    `json:"exitCode,omitempty"`
		Exited   bool   `json:"exited,omitempty"`
		Status   string `json:"status,omitempty"`
		Error    string `json:"error,omitempty"`
	}
	dataEvent struct {
		Stdout []byte `json:"stdout,omitempty"`
		Stderr []byte `json:"stderr,omitempty"`
		Pty    []byte `json:"pty,omitempty"`
	}
	processEvent struct {
		Start     *startEvent `json:"start,omitempty"`
		Data      *dataEvent  `json:"data,omitempty"`
		End       *endEvent   `json:"end,omitempty"`
		Keepalive *struct{}   `json:"keepalive,omitempty"`
	}
	processStream struct {
		Event processEvent `json:"event"`
	}
	processInfo struct {
		Config processConfig `json:"config"`
		PID    int           `json:"pid"`
	}
	processList struct {
		Processes []processInfo `json:"processes,omitempty"`
	}
	nothing struct{}
)

// StreamInput is the path of the call whose body is the input of a process, for as long as that runs.
const StreamInput = "/process.Process/StreamInput"

// processes are those of all sandboxes.
type processes struct {
	svc       service.Processes
	followers followers
}

func (p *processes) route(a *Agent) {
	unary(a, "/process.Process/List", p.list)
	stream(a, "/process.Process/Start", p.start)
	stream(a, "/process.Process/Connect", p.connect)
	unary(a, "/process.Process/Update", p.resize)
	unary(a, "/process.Process/SendInput", p.sendInput)
	unary(a, "/process.Process/SendSignal", p.signal)
	unary(a, "/process.Process/CloseStdin", p.closeInput)
	a.handle(http.MethodPost, StreamInput, connect.NewClientStreamHandler(StreamInput, func(ctx context.Context, from *connect.ClientStream[streamInputRequest]) (*connect.Response[nothing], error) {
		if err := p.streamInput(ctx, of(ctx), from); err != nil {
			return nil, rpcError(err)
		}
		return connect.NewResponse(&nothing{}), nil
	}, options...))
}

func (ps *processes) list(ctx context.Context, s *Sandbox, _ *nothing) (*processList, error) {
	all, err := ps.svc.Processes(ctx, s.ID, false)
	if err != nil {
		return nil, err
	}
	out := &processList{}
	for _, p := range all {
		if p.Kept != nil && p.Kept.EndedAt == nil {
			out.Processes = append(out.Processes, processInfo{PID: p.PID, Config: configOf(p.Command)})
		}
	}
	return out, nil
}

// configOf returns how a process was started. Its command line has no quotes, so arguments are told apart
// only in the form that clients start shells in.
func configOf(command string) processConfig {
	const shell = "/bin/bash -l -c "
	if script, ok := strings.CutPrefix(command, shell); ok {
		return processConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", script}}
	}
	words := strings.Fields(command)
	if len(words) == 0 {
		return processConfig{}
	}
	return processConfig{Cmd: words[0], Args: words[1:]}
}

// maxKeepKiB is how far a client may be behind.
const maxKeepKiB = 16384

// start starts a process and follows it. The process ends at the deadline of the call, and goes on if its
// client leaves before.
func (ps *processes) start(ctx context.Context, s *Sandbox, in *startRequest, to *sender[processStream]) error {
	req := api.StartRequest{
		Argv: append([]string{in.Process.Cmd}, in.Process.Args...), Env: map[string]string{}, User: s.user(),
		Stdin: in.Stdin == nil || *in.Stdin, // old clients do not say
		// A process does not wait for its client: what it writes is kept until it is sent.
		KeepKiB: maxKeepKiB,
	}
	maps.Copy(req.Env, s.Env)
	maps.Copy(req.Env, in.Process.Envs)
	req.Cwd = s.home()
	if in.Process.Cwd != nil {
		req.Cwd = s.absolute(*in.Process.Cwd)
	}
	if in.Pty != nil {
		req.Terminal = in.Pty.terminal()
		req.Stdin = false
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.TimeoutMS = max(1, time.Until(deadline).Milliseconds())
	}
	p, err := ps.svc.StartProcess(ctx, s.ID, req)
	if err != nil {
		return err
	}
	at := ps.followers.join(s.ID, p.PID)
	defer ps.leave(ctx, at)
	return ps.follow(ctx, s, at, following{started: true, terminal: in.Pty != nil}, to)
}

func (p *pty) terminal() *api.TerminalSize {
	if p.Size == nil || p.Size.Cols == 0 || p.Size.Rows == 0 {
		return &api.TerminalSize{Cols: 80, Rows: 24}
	}
	return &api.TerminalSize{Cols: p.Size.Cols, Rows: p.Size.Rows}
}

// connect follows a process from now on.
func (ps *processes) connect(ctx context.Context, s *Sandbox, in *selected, to *sender[processStream]) error {
	at := ps.followers.join(s.ID, in.Process.PID) // before the process is found: it is not removed from now on
	defer ps.leave(ctx, at)
	p, err := ps.find(ctx, s, in.Process)
	if err != nil {
		return err
	}
	return ps.follow(ctx, s, at, following{from: p.Kept.NextSeq, terminal: p.Kept.Terminal}, to)
}

// following says how a client follows a process.
type following struct {
	started  bool // by the client
	from     int64
	terminal bool
}

// follow sends the output of a process, and its end.
func (ps *processes) follow(ctx context.Context, s *Sandbox, at *followed, how following, to *sender[processStream]) error {
	pid := at.pid
	if err := to.send(&processStream{processEvent{Start: &startEvent{pid}}}); err != nil {
		return err
	}
	stop := to.keepAlive(ctx, s.ping, &processStream{processEvent{Keepalive: &struct{}{}}})
	end, err := ps.svc.Attach(ctx, s.ID, pid, api.AttachRequest{From: how.from, Follow: true}, api.AttachIO{Output: func(c api.Chunk) error {
		d := &dataEvent{}
		switch {
		case c.Lost > 0:
			return api.Errorf(api.CodeLimit, "%d bytes of the output were lost: the client was more than %d MiB behind", c.Lost, maxKeepKiB>>10)
		case how.terminal:
			d.Pty = c.Data
		case c.Stderr:
			d.Stderr = c.Data
		default:
			d.Stdout = c.Data
		}
		return to.send(&processStream{processEvent{Data: d}})
	}})
	stop()
	if err != nil {
		return err
	}
	if how.started && end.Exit != nil && end.Exit.TimedOut { // at the deadline of this call
		ps.followers.tell(at)
		return api.Errorf(api.CodeTimeout, "process %d was ended at its deadline", pid)
	}
	if end.Exit == nil {
		return api.Errorf(api.CodeUnavailable, "the output of process %d ended before the process", pid)
	}
	if err := to.send(&processStream{processEvent{End: ended(end.Exit)}}); err != nil {
		return err
	}
	ps.followers.tell(at)
	return nil
}

// leave takes a client of a process away. The last one removes the process, if its end was told.
func (ps *processes) leave(ctx context.Context, at *followed) {
	if !ps.followers.leave(at) {
		return
	}
	ctx = context.WithoutCancel(ctx) // its own client may be gone
	p, err := ps.svc.Process(ctx, at.sandbox, at.pid)
	if err == nil && p.Kept != nil && p.Kept.EndedAt != nil { // and not another one with its number
		_ = ps.svc.RemoveProcess(ctx, at.sandbox, at.pid) // it may have been removed through another interface
	}
}

// signalNames are what Go calls the signals that end most processes.
var signalNames = map[string]string{"KILL": "killed", "TERM": "terminated", "INT": "interrupt", "HUP": "hangup", "ABRT": "aborted", "SEGV": "segmentation fault", "PIPE": "broken pipe"}

// ended tells of an end as Go does: a process that a signal ended has the exit code -1.
func ended(r *api.ExecResult) *endEvent {
	if r.Signal != "" {
		name := strings.TrimPrefix(r.Signal, "SIG")
		status := "signal: " + cmp.Or(signalNames[name], strings.ToLower(name))
		return &endEvent{ExitCode: -1, Status: status, Error: status}
	}
	e := &endEvent{ExitCode: r.ExitCode, Exited: true, Status: fmt.Sprintf("exit status %d", r.ExitCode)}
	if r.ExitCode != 0 {
		e.Error = e.Status
	}
	return e
}

// find returns the process that a client means.
func (ps *processes) find(ctx context.Context, s *Sandbox, sel processSelector) (*api.Process, error) {
	if sel.PID == 0 {
		return nil, api.Errorf(api.CodeUnsupported, "processes are selected by pid: tags are not kept")
	}
	p, err := ps.svc.Process(ctx, s.ID, sel.PID)
	if err != nil {
		return nil, err
	}
	if p.Kept == nil || p.Kept.EndedAt != nil {
		return nil, api.NotFound("process", fmt.Sprint(sel.PID))
	}
	return p, nil
}

func (ps *processes) resize(ctx context.Context, s *Sandbox, in *updateRequest) (*nothing, error) {
	p, err := ps.find(ctx, s, in.Process)
	if err != nil {
		return nil, err
	}
	if in.Pty != nil {
		err = ps.svc.ResizeProcess(ctx, s.ID, p.PID, *in.Pty.terminal())
	}
	return &nothing{}, err
}

func (ps *processes) sendInput(ctx context.Context, s *Sandbox, in *inputRequest) (*nothing, error) {
	p, err := ps.find(ctx, s, in.Process)
	if err != nil {
		return nil, err
	}
	return &nothing{}, ps.svc.WriteProcess(ctx, s.ID, p.PID, bytes.NewReader(append(in.Input.Stdin, in.Input.Pty...)), false)
}

func (ps *processes) streamInput(ctx context.Context, s *Sandbox, from *connect.ClientStream[streamInputRequest]) error {
	pid := 0
	for from.Receive() {
		switch m := from.Msg(); {
		case m.Start != nil:
			p, err := ps.find(ctx, s, m.Start.Process)
			if err != nil {
				return err
			}
			pid = p.PID
		case m.Data != nil && pid == 0:
			return api.Invalid("event", "the first message is not a start event")
		case m.Data != nil:
			if err := ps.svc.WriteProcess(ctx, s.ID, pid, bytes.NewReader(append(m.Data.Input.Stdin, m.Data.Input.Pty...)), false); err != nil {
				return err
			}
		}
	}
	return from.Err()
}

func (ps *processes) closeInput(ctx context.Context, s *Sandbox, in *selected) (*nothing, error) {
	p, err := ps.find(ctx, s, in.Process)
	if err != nil {
		return nil, err
	}
	return &nothing{}, ps.svc.WriteProcess(ctx, s.ID, p.PID, bytes.NewReader(nil), true)
}

// signal signals a process, and its group if that is to end: a shell would leave its command behind.
func (ps *processes) signal(ctx context.Context, s *Sandbox, in *signalRequest) (*nothing, error) {
	p, err := ps.find(ctx, s, in.Process)
	if err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(fmt.Sprint(in.Signal), "SIGNAL_")
	if name != "SIGTERM" && name != "SIGKILL" && name != "15" && name != "9" {
		return nil, api.Invalid("signal", "%.40q is not SIGNAL_SIGTERM or SIGNAL_SIGKILL", name)
	}
	return &nothing{}, ps.svc.SignalProcess(ctx, s.ID, p.PID, api.SignalRequest{Signal: name, Group: true})
}
