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

// Exec runs a command to its end and returns what it wrote. The daemon keeps at
// most 8 MiB of each stream.
func (s *Processes) Exec(ctx context.Context, ref string, req api.ExecRequest) (*api.ExecResult, error) {
	return on[*api.ExecResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/exec", nil, req)
}

// ExecStream runs a command and copies its streams meanwhile; the result has
// empty Stdout and Stderr. When ctx ends, the command is killed. Should the
// command end while a read of Stdin blocks, the call returns and leaves that one
// read behind.
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

// Export copies the files of a sandbox or snapshot to w, in the form that the
// request asks for. If it fails, what was written is not all.
func (s *Sandboxes) Export(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error {
	p, err := path("sandboxes", ref, "/export")
	if err != nil {
		return err
	}
	query := url.Values{"format": {string(req.Format)}}
	if req.Gzip {
		query.Set("gzip", "1")
	}
	resp, err := s.conn.send(ctx, http.MethodGet, p, query, nil, "*/*", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := &source{Reader: resp.Body}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, in, make([]byte, exportBuffer))
	if in.err != nil {
		return connectionError(ctx, in.err)
	}
	if err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	return nil
}

// exportBuffer is how much of an export is copied at once, in bytes.
const exportBuffer = 256 << 10

// Commit makes an image of the files of a sandbox or snapshot. progress is called
// from the calling goroutine.
func (s *Images) Commit(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
	p, err := path("sandboxes", ref, "/commit")
	if err != nil {
		return nil, err
	}
	return s.conn.makeImage(ctx, p, req, progress)
}

// Create builds, imports or pulls an image. progress is called from the
// calling goroutine.
func (s *Images) Create(ctx context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	return s.conn.makeImage(ctx, "/v1/images", req, progress)
}

func (c *connection) makeImage(ctx context.Context, path string, req any, progress func(api.Progress)) (*api.Image, error) {
	var img *api.Image
	err := c.events(ctx, http.MethodPost, path, nil, req, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventProgress:
			var p api.Progress
			if err := json.Unmarshal(ev.Data, &p); err != nil {
				return false, fmt.Errorf("decode progress: %w", err)
			}
			progress(p)
		case httpwire.EventImage:
			return true, json.Unmarshal(ev.Data, &img)
		}
		return false, nil
	})
	return img, err
}

// events makes a request and hands the events of the answer to each, until it
// reports the last one. Unknown events are its business; the daemon's error
// event is not.
func (c *connection) events(ctx context.Context, method, path string, query url.Values, body any, each func(httpwire.Event) (done bool, err error)) error {
	resp, err := c.send(ctx, method, path, query, body, httpwire.EventType, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := httpwire.NewEventReader(resp.Body)
	for {
		ev, err := in.Next()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // the last event was not seen
		}
		if err != nil {
			return connectionError(ctx, err)
		}
		if ev.Name == httpwire.EventError {
			var p httpwire.Problem
			if err := json.Unmarshal(ev.Data, &p); err != nil {
				return connectionError(ctx, err)
			}
			return &p
		}
		done, err := each(ev)
		if err != nil {
			return err
		}
		if done {
			// Reading to the end gives the connection back to the pool.
			_, _ = io.Copy(io.Discard, resp.Body)
			return nil
		}
	}
}
