package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Contexts manages stateful interpreters in sandboxes, and runs code in them.
type Contexts struct{ conn *connection }

// List returns the interpreters in a sandbox.
func (s *Contexts) List(ctx context.Context, ref string) ([]api.Context, error) {
	l, err := on[httpwire.List[api.Context]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/contexts", nil, nil)
	return l.Items, err
}

// Create starts an interpreter.
func (s *Contexts) Create(ctx context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
	return on[*api.Context](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/contexts", nil, req)
}

// Interrupt interrupts the cell that an interpreter runs, and reports whether it ran one.
// Restart ends a cell that ignores that.
func (s *Contexts) Interrupt(ctx context.Context, ref, name string) (bool, error) {
	i, err := on[httpwire.Interrupted](ctx, s.conn, http.MethodPost, "sandboxes", ref, contextPath(name, "/interrupt"), nil, nil)
	return i.Interrupted, err
}

// Restart gives a context a new interpreter, without the state of the old one.
func (s *Contexts) Restart(ctx context.Context, ref, name string) (*api.Context, error) {
	return on[*api.Context](ctx, s.conn, http.MethodPost, "sandboxes", ref, contextPath(name, "/restart"), nil, nil)
}

// Destroy ends a context and its interpreter.
func (s *Contexts) Destroy(ctx context.Context, ref, name string) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "sandboxes", ref, contextPath(name, ""), nil, nil)
	return err
}

func contextPath(name, rest string) string { return "/contexts/" + url.PathEscape(name) + rest }

// RunCode runs a cell to its end and returns its output and results. The daemon keeps at
// most 8 MiB of each stream.
func (s *Contexts) RunCode(ctx context.Context, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
	return on[*api.RunResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/run-code", nil, req)
}

// RunCodeStream runs a cell and passes on its output and results meanwhile: those of the
// returned result are empty. When ctx ends, the cell is interrupted.
func (s *Contexts) RunCodeStream(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
	streams.Stdout, streams.Stderr = api.Discard(streams.Stdout), api.Discard(streams.Stderr)
	p, err := path("sandboxes", ref, "/run-code")
	if err != nil {
		return nil, err
	}
	var res *api.RunResult
	err = s.conn.events(ctx, http.MethodPost, p, nil, req, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventStdout:
			return false, writeChunk(streams.Stdout, ev.Data)
		case httpwire.EventStderr:
			return false, writeChunk(streams.Stderr, ev.Data)
		case httpwire.EventResult:
			var forms map[string]json.RawMessage
			if err := json.Unmarshal(ev.Data, &forms); err != nil {
				return false, fmt.Errorf("decode result: %w", err)
			}
			if streams.Result != nil {
				return false, streams.Result(forms)
			}
		case httpwire.EventExit:
			return true, json.Unmarshal(ev.Data, &res)
		}
		return false, nil
	})
	return res, err
}

func writeChunk(w io.Writer, data []byte) error {
	_, p, err := parseChunk(data)
	if err != nil {
		return err
	}
	if _, err := w.Write(p); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// parseChunk decodes the data of an event that is a piece of output.
func parseChunk(data []byte) (chunk httpwire.Chunk, p []byte, err error) {
	if err := json.Unmarshal(data, &chunk); err != nil {
		return chunk, nil, fmt.Errorf("decode output: %w", err)
	}
	p, err = chunk.Bytes()
	return chunk, p, err
}
