package sentry

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/guestfs"
)

// file serves a call about files, whose shape package wire describes.
func (s *server) file(g *guest.Guest, c *wire.Conn, req *wire.File) (any, error) {
	if req == nil || req.Verb == wire.FileChmod && req.Mode == nil {
		return nil, errCall
	}
	defer c.Rest()
	for field, path := range map[string][]byte{"path": req.Path, "to": req.To} {
		if field == "to" && req.Verb != wire.FileMove {
			continue
		}
		if err := api.ValidPath(field, string(path)); err != nil {
			return nil, err
		}
	}
	alive := caller(c)
	switch req.Verb {
	case wire.FileStat:
		return g.Files.Stat(req)
	case wire.FileRead:
		return nil, readFile(g, c, req)
	case wire.FileWrite:
		return writeFile(g, c, req)
	case wire.FileMkdir, wire.FileMove, wire.FileRemove, wire.FileChmod:
		return g.Files.Change(req, alive)
	case wire.FileList:
		return g.Files.List(req, alive, func(f *api.FileInfo) error { return c.SendJSON(wire.TypeItem, f) })
	case wire.FileSearch:
		return g.Files.Search(req, alive, func(m *api.Match) error { return c.SendJSON(wire.TypeItem, m) })
	case wire.FileArchive:
		return struct{}{}, g.Files.Archive(req, alive, packetWriter{c, wire.TypeData})
	case wire.FileExtract:
		return g.Files.Extract(req, alive, &packetReader{c: c})
	case wire.FileWatch:
		return nil, watch(g, c, req, alive)
	}
	return nil, api.Errorf(api.CodeInvalid, "no verb %q", req.Verb)
}

// caller returns a function that fails when the caller has closed the connection.
func caller(c *wire.Conn) func() error {
	return func() error {
		if c.HungUp() {
			return context.Canceled
		}
		return nil
	}
}

// readFile sends the ranges that are asked for until the caller closes the
// connection.
func readFile(g *guest.Guest, c *wire.Conn, req *wire.File) error {
	f, err := g.Files.Open(req)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.SendJSON(wire.TypeItem, f.Info); err != nil {
		return err
	}
	buf := make([]byte, wire.MaxChunk)
	for {
		p, err := c.Receive()
		if err != nil {
			return nil // the caller has read enough
		}
		p.Close()
		var want wire.Range
		if err := json.Unmarshal(p.Body, &want); err != nil || p.Type != wire.TypeRange || want.Offset < 0 || want.Length < 0 {
			return errCall
		}
		if err := sendRange(f, c, want, buf); err != nil {
			return err
		}
	}
}

func sendRange(f *guestfs.OpenFile, c *wire.Conn, want wire.Range, buf []byte) error {
	for want.Length > 0 {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), want.Length)], want.Offset)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := c.Send(wire.TypeData, buf[:n]); err != nil {
			return err
		}
		want.Offset += int64(n)
		want.Length -= int64(n)
	}
	return c.Send(wire.TypeData, nil)
}

func writeFile(g *guest.Guest, c *wire.Conn, req *wire.File) (any, error) {
	w, err := g.Files.Create(req)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	in := &packetReader{c: c}
	for {
		data, err := in.next()
		if err == io.EOF {
			return w.Commit()
		}
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
}

// packetReader reads the data that the caller sends, up to its end.
type packetReader struct {
	c     *wire.Conn
	rest  []byte
	ended bool
}

// next returns the data of the next packet, which is valid until the next call;
// io.EOF says that all has come.
func (r *packetReader) next() ([]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	p, err := r.c.Receive()
	if err != nil {
		return nil, api.Errorf(api.CodeCanceled, "the caller went away")
	}
	p.Close()
	if p.Type != wire.TypeData {
		return nil, errCall
	}
	if len(p.Body) == 0 {
		r.ended = true
		return nil, io.EOF
	}
	return p.Body, nil
}

// Read implements io.Reader.
func (r *packetReader) Read(buf []byte) (int, error) {
	if len(r.rest) == 0 {
		var err error
		if r.rest, err = r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(buf, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// watch tells of changes until the caller goes away. Changes are collected all
// the time; a goroutine of its own sends them, because a caller may read slowly.
func watch(g *guest.Guest, c *wire.Conn, req *wire.File, alive func() error) error {
	w, err := g.Files.Watch(req, alive)
	if err != nil {
		return err
	}
	defer w.Close()
	send := make(chan *api.FileEvents)
	sent := make(chan error, 1)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer close(send)
	sending.Go(func() {
		var err error
		for events := range send {
			if err == nil {
				err = c.SendJSON(wire.TypeItem, events)
			}
			sent <- err
		}
	})
	send <- &api.FileEvents{Ready: true, Changes: []api.FileEvent{}}
	busy := true
	check := time.NewTicker(hangUpCheck)
	defer check.Stop()
	var due <-chan time.Time
	for {
		select {
		case <-w.Changed():
			if err := w.Collect(alive); err != nil {
				return err
			}
		case <-due:
			due = nil
			send <- w.Take()
			busy = true
		case err := <-sent:
			if err != nil {
				return err
			}
			busy = false
		case <-check.C:
			if err := alive(); err != nil {
				return err
			}
		}
		if !busy && due == nil && w.Pending() {
			due = time.After(time.Duration(req.DebounceMS) * time.Millisecond)
		}
	}
}
