package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Processes runs commands in sandboxes and manages their processes.
type Processes struct{ conn *connection }

// List returns the processes in a sandbox, with all also those that Start started and that
// have ended.
func (s *Processes) List(ctx context.Context, ref string, all bool) ([]api.Process, error) {
	query := url.Values{}
	if all {
		query.Set("all", "true")
	}
	l, err := on[httpwire.List[api.Process]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/processes", query, nil)
	return l.Items, err
}

// Start starts a process in the background. The daemon keeps the end of its output.
func (s *Processes) Start(ctx context.Context, ref string, req api.StartRequest) (*api.Process, error) {
	return on[*api.Process](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/processes", nil, req)
}

// Get returns a process.
func (s *Processes) Get(ctx context.Context, ref string, pid int) (*api.Process, error) {
	return on[*api.Process](ctx, s.conn, http.MethodGet, "sandboxes", ref, processPath(pid, ""), nil, nil)
}

// Wait waits for the end of a process that Start started.
func (s *Processes) Wait(ctx context.Context, ref string, pid int) (*api.ExecResult, error) {
	return on[*api.ExecResult](ctx, s.conn, http.MethodGet, "sandboxes", ref, processPath(pid, "/wait"), nil, nil)
}

// Write writes data, at most 8 MiB, to the standard input of a process, and with end closes it
// afterwards. It blocks while the process does not read.
func (s *Processes) Write(ctx context.Context, ref string, pid int, data []byte, end bool) error {
	query := url.Values{}
	if end {
		query.Set("end", "true")
	}
	if data == nil {
		data = []byte{}
	}
	_, err := on[struct{}](ctx, s.conn, http.MethodPost, "sandboxes", ref, processPath(pid, "/stdin"), query, data)
	return err
}

// Signal sends a signal to any process in the sandbox.
func (s *Processes) Signal(ctx context.Context, ref string, pid int, req api.SignalRequest) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodPost, "sandboxes", ref, processPath(pid, "/signal"), nil, req)
	return err
}

// Resize sets the size of the terminal of a process.
func (s *Processes) Resize(ctx context.Context, ref string, pid int, size api.TerminalSize) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodPost, "sandboxes", ref, processPath(pid, "/resize"), nil, size)
	return err
}

// Remove kills a process that Start started, with its process group, if it runs, and drops its
// output.
func (s *Processes) Remove(ctx context.Context, ref string, pid int) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "sandboxes", ref, processPath(pid, ""), nil, nil)
	return err
}

// Output calls each with the output of a process, and returns where it ended. each must not
// keep the data.
func (s *Processes) Output(ctx context.Context, ref string, pid int, req api.AttachRequest, each func(api.Chunk) error) (*api.Position, error) {
	p, err := path("sandboxes", ref, processPath(pid, "/output"))
	if err != nil {
		return nil, err
	}
	query := url.Values{"from": {strconv.FormatInt(req.From, 10)}, "follow": {strconv.FormatBool(req.Follow)}}
	var pos *api.Position
	err = s.conn.events(ctx, http.MethodGet, p, query, nil, func(ev httpwire.Event) (done bool, err error) {
		if ev.Name == httpwire.EventPosition {
			return true, json.Unmarshal(ev.Data, &pos)
		}
		if chunk, known, err := outputOf(ev); err != nil || !known {
			return false, err
		} else {
			return false, each(chunk)
		}
	})
	return pos, err
}

// Logs calls each with the output of all processes that Start started in a sandbox. With
// follow it goes on until ctx ends or the sandbox is destroyed. each must not keep the data.
func (s *Processes) Logs(ctx context.Context, ref string, follow bool, each func(api.LogPiece) error) error {
	p, err := path("sandboxes", ref, "/logs")
	if err != nil {
		return err
	}
	return s.conn.events(ctx, http.MethodGet, p, url.Values{"follow": {strconv.FormatBool(follow)}}, nil, func(ev httpwire.Event) (done bool, err error) {
		var of struct{ PID int }
		if err := json.Unmarshal(ev.Data, &of); err != nil {
			return false, fmt.Errorf("decode logs: %w", err)
		}
		piece := api.LogPiece{PID: of.PID}
		switch ev.Name {
		case httpwire.EventEnd:
			return true, nil
		case httpwire.EventPosition:
			if err := json.Unmarshal(ev.Data, &piece.Read); err != nil {
				return false, fmt.Errorf("decode logs: %w", err)
			}
		default:
			var known bool
			if piece.Chunk, known, err = outputOf(ev); !known || err != nil {
				return false, err
			}
		}
		return false, each(piece)
	})
}

// outputOf returns the piece of output that is in an event, if the event is one of output.
func outputOf(ev httpwire.Event) (_ api.Chunk, known bool, err error) {
	switch ev.Name {
	case httpwire.EventStdout, httpwire.EventStderr:
		chunk, data, err := parseChunk(ev.Data)
		return api.Chunk{Stderr: ev.Name == httpwire.EventStderr, Seq: chunk.Seq, Time: chunk.TS, Data: data}, true, err
	case httpwire.EventLost:
		var lost httpwire.Lost
		if err := json.Unmarshal(ev.Data, &lost); err != nil {
			return api.Chunk{}, true, fmt.Errorf("decode output: %w", err)
		}
		return api.Chunk{Seq: lost.Seq, Lost: lost.Bytes}, true, nil
	}
	return api.Chunk{}, false, nil
}

// Attach connects the streams with a process until it ends. from is the sequence number of the
// first byte of output, -1 for the output from now on. When ctx ends, the process goes on. A
// read of Stdin that blocks then is left behind.
func (s *Processes) Attach(ctx context.Context, ref string, pid int, from int64, streams api.AttachIO) (*api.Position, error) {
	p, err := path("sandboxes", ref, processPath(pid, "/attach"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := s.conn.openSocket(ctx, p+"?from="+strconv.FormatInt(from, 10))
	if err != nil {
		return nil, err
	}
	defer conn.CloseNow()
	inputErr := make(chan error, 1)
	if streams.Stdin != nil {
		go func() { // ends with the connection, or with the read it is in
			if err := sendInput(ctx, conn, streams.Stdin); err != nil {
				inputErr <- err
				cancel()
			}
		}()
	}
	if streams.Sizes != nil {
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			sendSizes(ctx, conn, streams.Sizes)
		}()
		defer func() {
			cancel()
			<-sent
		}()
	}
	pos, err := receiveChunks(ctx, conn, streams.Output)
	if err != nil {
		select {
		case err = <-inputErr: // the cause of the other
		default:
		}
	}
	return pos, err
}

// sendSizes sends sizes until there are no more or the connection ends.
func sendSizes(ctx context.Context, conn *websocket.Conn, sizes <-chan api.TerminalSize) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			msg, err := json.Marshal(httpwire.Control{Resize: &size})
			if err != nil || conn.Write(ctx, websocket.MessageText, msg) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// receiveChunks calls each with the output of the process, until the last message.
func receiveChunks(ctx context.Context, conn *websocket.Conn, each func(api.Chunk) error) (*api.Position, error) {
	for {
		kind, msg, err := conn.Read(ctx)
		if err != nil {
			return nil, connectionError(ctx, err)
		}
		if kind == websocket.MessageBinary {
			chunk, err := httpwire.ParseOutput(msg)
			if err != nil {
				return nil, connectionError(ctx, err)
			}
			if err := each(chunk); err != nil {
				return nil, err
			}
			continue
		}
		var m httpwire.AttachMessage
		if err := json.Unmarshal(msg, &m); err != nil {
			return nil, connectionError(ctx, err)
		}
		switch {
		case m.Lost != nil:
			if err := each(api.Chunk{Seq: m.Lost.Seq, Lost: m.Lost.Bytes}); err != nil {
				return nil, err
			}
		case m.Error != nil:
			return nil, m.Error
		case m.Position != nil:
			return m.Position, nil
		default:
			return nil, connectionError(ctx, errors.New("a message is empty"))
		}
	}
}

func processPath(pid int, rest string) string { return "/processes/" + strconv.Itoa(pid) + rest }
