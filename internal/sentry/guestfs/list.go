package guestfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guestfs/names"
)

const (
	// maxPage is about how many bytes of paths and lines an answer has.
	maxPage = 4 << 20
	// maxLine is how much of a line is searched at once, in bytes.
	maxLine = 64 << 10
	// maxShown is how much of a line is shown.
	maxShown = 1 << 10
	// maxSearched is the size of the largest file that is searched.
	maxSearched = 1 << 30
)

// List calls each with the files of one page and returns where the next begins.
func (fs *Files) List(req *wire.File, alive func() error, each func(*api.FileInfo) error) (*wire.Listed, error) {
	o, err := fs.requestOp(req)
	if err != nil {
		return nil, err
	}
	if err := names.CheckGlob(string(req.Glob)); err != nil {
		return nil, err
	}
	out := &wire.Listed{}
	last, count, size := "", 0, 0
	w := &walk{op: o, alive: alive, depth: req.Depth, visit: func(e *walked) error {
		if !names.Selected(string(req.Glob), e.rel) {
			return nil
		}
		if count == req.Limit || size > maxPage {
			out.Next = []byte(last)
			return errEnough
		}
		last = e.rel
		count++
		if o.xattrs != "" {
			err := o.do(func(root vfs.VirtualDentry) error {
				o.tellXattrs(root, e.info)
				return nil
			})
			if err != nil {
				return err
			}
		}
		size += len(e.info.Path) + len(e.info.Target)
		for name, value := range e.info.Xattrs {
			size += len(name) + len(value)
		}
		return each(e.info)
	}}
	if err := w.run(string(req.Path), string(req.After)); err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return out, nil
}

// Search calls each with the files, or lines, that match.
func (fs *Files) Search(req *wire.File, alive func() error, each func(*api.Match) error) (*wire.Listed, error) {
	o, err := fs.fileOp(req.User)
	if err != nil {
		return nil, err
	}
	if err := names.CheckGlob(string(req.Glob)); err != nil {
		return nil, err
	}
	s := &search{op: o, req: req, alive: alive, each: each}
	if s.found, err = finder(req); err != nil {
		return nil, err
	}
	w := &walk{op: o, alive: alive, visit: s.visit}
	if err := w.run(string(req.Path), ""); err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return &wire.Listed{Truncated: s.truncated}, nil
}

// search is a search under way.
type search struct {
	op        *fileOp
	req       *wire.File
	alive     func() error
	each      func(*api.Match) error
	found     func(line []byte) bool // nil in a search by name
	count     int
	size      int // of paths and lines, in bytes
	truncated bool
}

// finder returns a function that looks for the text in a line, or nil if there is no text.
func finder(req *wire.File) (func([]byte) bool, error) {
	switch {
	case len(req.Text) == 0:
		return nil, nil
	case !req.Regexp && !req.IgnoreCase:
		return func(line []byte) bool { return bytes.Contains(line, req.Text) }, nil
	}
	expr := string(req.Text)
	if !req.Regexp {
		expr = regexp.QuoteMeta(expr)
	}
	if req.IgnoreCase {
		expr = "(?i)" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, api.Invalid("content", "not a regular expression: %w", err)
	}
	return re.Match, nil
}

func (s *search) visit(e *walked) error {
	switch {
	case !names.Selected(string(s.req.Glob), e.rel):
		return nil
	case s.found == nil:
		return s.add(&api.Match{File: *e.info})
	case e.info.Type != typeFile || e.info.Size == 0 || e.info.Size > maxSearched:
		return nil
	}
	f := &OpenFile{op: s.op, Info: e.info}
	err := s.op.do(func(root vfs.VirtualDentry) error {
		var err error
		f.held, _, err = s.op.openRegular(root, e.info.Path, linux.O_RDONLY|linux.O_NOFOLLOW, 0)
		return err
	})
	if err != nil {
		return nil // gone, or not for this user
	}
	defer f.Close()
	return s.lines(f)
}

// lines looks at the lines of a file, unless it is binary.
func (s *search) lines(f *OpenFile) error {
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, f.Info.Size), maxLine)
	if head, _ := in.Peek(maxLine); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for number, begun := 0, false; ; {
		line, err := in.ReadSlice('\n')
		if !begun && len(line) > 0 {
			number++
		}
		begun = err == bufio.ErrBufferFull // the next piece is of the same line
		line = bytes.TrimSuffix(line, []byte("\n"))
		if (len(line) > 0 || err == nil) && s.found(line) {
			text := strings.ToValidUTF8(string(line[:min(len(line), maxShown)]), "\uFFFD")
			if err := s.add(&api.Match{File: *f.Info, Line: number, Text: text}); err != nil {
				return err
			}
		}
		if err != nil && !begun {
			return nil // the end, or the file cannot be read
		}
		if number%4096 == 0 || begun {
			if err := s.alive(); err != nil {
				return err
			}
		}
	}
}

func (s *search) add(m *api.Match) error {
	if s.count == s.req.Limit || s.size > maxPage {
		s.truncated = true
		return errEnough
	}
	s.count++
	s.size += len(m.File.Path) + len(m.Text)
	return s.each(m)
}
