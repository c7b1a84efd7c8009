package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Exec runs a command to its end and returns its output. A command that fails is a result and
// not an error. The daemon keeps at most 8 MiB of each stream.
func (s *Processes) Exec(ctx context.Context, ref string, req api.ExecRequest) (*api.ExecResult, error) {
	return on[*api.ExecResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/exec", nil, req)
}

// ExecStream runs a command and copies its streams meanwhile: Stdout and Stderr of the result
// are empty. When ctx ends, the command is killed. If the command ends while a read of Stdin
// blocks, the call returns and leaves that read behind.
func (s *Processes) ExecStream(ctx context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	streams.Stdout, streams.Stderr = api.Discard(streams.Stdout), api.Discard(streams.Stderr)
	p, err := path("sandboxes", ref, "/exec")
	if err != nil {
		return nil, err
	}
	if streams.Stdin != nil {
		return s.conn.execSocket(ctx, p, req, streams)
	}
	resp, err := s.conn.send(ctx, http.MethodPost, p, nil, req, httpwire.FrameType, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for in := httpwire.NewFrameReader(resp.Body); ; {
		stream, data, final, err := in.Next()
		if err != nil {
			return nil, connectionError(ctx, err)
		}
		if final != nil {
			// Reading to the end gives the connection back to the pool.
			_, _ = io.Copy(io.Discard, resp.Body)
			if final.Error != nil {
				return nil, final.Error
			}
			return final.Exit, nil
		}
		w := streams.Stdout
		if stream == httpwire.StreamStderr {
			w = streams.Stderr
		}
		if _, err := w.Write(data); err != nil {
			return nil, fmt.Errorf("write output: %w", err)
		}
	}
}
