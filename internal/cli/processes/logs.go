package processes

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// allLogs prints the output of all background processes of a sandbox. With follow, it continues
// with new output and new processes until it is interrupted or the sandbox is destroyed.
func (g *Group) allLogs(ctx context.Context, c *client.Client, ref string, follow, times bool) error {
	if g.JSON {
		return c.Processes.Logs(ctx, ref, follow, func(p api.LogPiece) error {
			if p.Read != nil {
				return nil
			}
			return g.WriteJSON(processLine{PID: p.PID, Output: lineOf(p.Chunk)})
		})
	}
	lines := map[stream]*lineWriter{}
	defer func() {
		for _, w := range lines {
			_ = w.flush() // the first error counts
		}
	}()
	return c.Processes.Logs(ctx, ref, follow, func(p api.LogPiece) error {
		if p.Read != nil {
			for _, stderr := range []bool{false, true} {
				if w := lines[stream{p.PID, stderr}]; w != nil {
					if err := w.flush(); err != nil {
						return err
					}
				}
				delete(lines, stream{p.PID, stderr})
			}
			return nil
		}
		if p.Chunk.Lost > 0 {
			return g.WriteChunk(p.Chunk)
		}
		of := stream{p.PID, p.Chunk.Stderr}
		w := lines[of]
		if w == nil {
			w = &lineWriter{app: g, stream: of, times: times}
			lines[of] = w
		}
		return w.write(p.Chunk)
	})
}

// stream identifies an output stream of a process.
type stream struct {
	pid    int
	stderr bool
}

// processLine is the JSON of a piece of output in the logs of all processes.
type processLine struct {
	PID    int `json:"pid"`
	Output any `json:"output"`
}

// maxLine is the length from which an incomplete line is printed, in bytes.
const maxLine = 64 << 10

// lineWriter writes whole lines of one stream, each with the process id before it.
type lineWriter struct {
	app *Group
	stream
	times bool
	buf   []byte
	stamp string
}

func (w *lineWriter) write(c api.Chunk) error {
	if w.times {
		w.stamp = stampOf(c)
	}
	w.buf = append(w.buf, c.Data...)
	for {
		i := bytes.IndexByte(w.buf, '\n')
		if i < 0 {
			break
		}
		if err := w.line(w.buf[:i]); err != nil {
			return err
		}
		w.buf = w.buf[i+1:]
	}
	if len(w.buf) > maxLine {
		return w.flush()
	}
	return nil
}

// flush writes an incomplete line.
func (w *lineWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	line := w.buf
	w.buf = nil
	return w.line(line)
}

func (w *lineWriter) line(text []byte) error {
	_, err := fmt.Fprintf(w.app.StreamOf(api.Chunk{Stderr: w.stderr}), "%s | %s%s\n", strconv.Itoa(w.pid), w.stamp, text)
	return err
}
