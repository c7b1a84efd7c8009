package fakedaemon

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// files has the one file that was written last.
type files struct {
	service.Files // what is missing
	content       []byte
}

// WriteFile implements service.Files.
func (f *files) WriteFile(_ context.Context, _ string, _ api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	content, err := io.ReadAll(from)
	f.content = content
	return &api.FileInfo{Type: "file", Size: int64(len(content))}, err
}

// OpenFile implements service.Files.
func (f *files) OpenFile(context.Context, string, api.FileRef) (service.OpenFile, error) {
	return openFile{bytes.NewReader(f.content)}, nil
}

type openFile struct{ *bytes.Reader }

// Close implements io.Closer.
func (openFile) Close() error { return nil }

// Info implements service.OpenFile.
func (f openFile) Info() api.FileInfo { return api.FileInfo{Type: "file", Size: f.Size()} }

// dd is a command that writes Stream bytes.
func (d *Daemon) dd(w io.Writer) (*api.ExecResult, error) {
	_, err := w.Write(make([]byte, d.Stream))
	return &api.ExecResult{OK: true}, err
}

// startProcess makes a process, the same in all children, whose output is a word.
func (d *Daemon) startProcess(_ context.Context, ref string, _ api.StartRequest) (*api.Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.find(ref)
	return &api.Process{PID: pid}, err
}

const pid = 7

func (d *Daemon) attach(ctx context.Context, ref string, p int, _ api.AttachRequest, streams api.AttachIO) (*api.Position, error) {
	d.mu.Lock()
	_, err := d.find(ref)
	d.attached = append(d.attached, ref)
	d.mu.Unlock()
	if err != nil || p != pid {
		return nil, api.NotFound("process", ref)
	}
	if !d.Silent {
		if err := streams.Output(api.Chunk{Data: []byte("started\n")}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &api.Position{Exit: &api.ExecResult{}}, nil
}

// Attached returns the sandboxes whose process was attached to.
func (d *Daemon) Attached() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.attached)
}

// dialPort connects with a server that sends Stream bytes.
func (d *Daemon) dialPort(ctx context.Context, _ string, _ uint16, _ time.Duration) (service.PortConn, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := l.Accept()
	if err != nil {
		return nil, err
	}
	d.servers.Go(func() {
		defer server.Close()
		server.Write(make([]byte, d.Stream))
	})
	return conn.(*net.TCPConn), nil
}
