package auditlog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// maxFaults bounds a report. One change breaks one link, and a removed line one.
const maxFaults = 100

// check is a verification.
type check struct {
	report api.AuditReport
	prev   string
	seq    int64
	anchor int64 // a line that must be there, 0 for none
	sum    string
	found  bool
}

func (c *check) fault(f api.AuditFault, format string, args ...any) {
	if f.Detail = fmt.Sprintf(format, args...); len(c.report.Faults) < maxFaults {
		c.report.Faults = append(c.report.Faults, f)
	}
}

// VerifyAudit reads the whole chain and reports its faults. head is the last line that an
// earlier verification reported, or empty.
func (l *Log) VerifyAudit(ctx context.Context, head string) (*api.AuditReport, error) {
	c := &check{report: api.AuditReport{Faults: []api.AuditFault{}}}
	var err error
	if head != "" {
		if c.anchor, c.sum, err = parseHead(head); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	files, err := filesIn(l.dir)
	var sizes []int64 // lines that are appended meanwhile are not verified
	for _, f := range files {
		fi, serr := os.Stat(f)
		if err = errors.Join(err, serr); serr == nil {
			sizes = append(sizes, fi.Size())
		}
	}
	seq, sum := l.seq, l.prev
	headSeq, headSum, herr := l.readHead()
	l.mu.Unlock()
	if err := errors.Join(err, herr); err != nil {
		return nil, fmt.Errorf("verify audit: %w", err)
	}
	for i, f := range files {
		if err := c.file(ctx, f, sizes[i], i == 0); err != nil {
			return nil, fmt.Errorf("verify audit: %w", err)
		}
	}
	at := api.AuditFault{File: headFile}
	switch {
	case c.seq != seq || c.prev != sum:
		c.fault(at, "the last line is %s, and the daemon wrote %s: the end was removed or changed", headText(c.seq, c.prev), headText(seq, sum))
	case headSeq != seq || headSum != sum:
		c.fault(at, "it says %s, and the last line is %s", headText(headSeq, headSum), headText(seq, sum))
	}
	if c.anchor != 0 && !c.found {
		c.fault(at, "line %s, which you know of, is not there: it was removed, changed or put aside", headText(c.anchor, c.sum))
	}
	c.report.Files, c.report.OK = len(files), len(c.report.Faults) == 0
	if c.seq > 0 {
		c.report.Head = headText(c.seq, c.prev)
	}
	return &c.report, nil
}

// file follows the chain through a file.
func (c *check) file(ctx context.Context, path string, size int64, first bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), maxLine)
	at := api.AuditFault{File: filepath.Base(path)}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		at.Line++
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if err != nil {
			c.fault(at, "a line that does not end, or has more than %d bytes", maxLine)
			break
		}
		c.line(at, bytes.TrimSuffix(line, []byte("\n")), first && at.Line == 1)
	}
	return nil
}

// line verifies a line.
func (c *check) line(at api.AuditFault, line []byte, first bool) {
	var e api.AuditEntry
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&e); err != nil {
		c.fault(at, "it is no entry: %v", err)
	}
	at.Seq = e.Seq
	if first {
		c.report.First = e.Seq
		if at.File != fmt.Sprintf("%016d%s", e.Seq, fileSuffix) {
			c.fault(at, "a file of this name begins with another line")
		}
		if e.Seq == 1 && e.Prev != "" {
			c.fault(at, "the first line has one before it")
		}
	} else {
		if e.Prev != c.prev {
			c.fault(at, "the line before is not the one that this was written after: one of them was changed, removed or moved")
		}
		gap := e.Details != nil && e.Details.Missing != ""
		if e.Seq != c.seq+1 && !(gap && e.Seq > c.seq) {
			c.fault(at, "it follows number %d", c.seq)
		}
	}
	if d := e.Details; e.Action == "audit-resumed" && d != nil && d.Missing != "" {
		c.fault(at, "when the daemon started, the end of the audit was missing: it was %s", d.Missing)
	}
	c.seq, c.prev = e.Seq, digest(line)
	c.report.Entries++
	if e.Seq == c.anchor && c.prev == c.sum {
		c.found = true
	}
}

// AuditEntries returns the changes that were made in the caller's tenant or to its things.
// The owner of the daemon gets all entries.
func (l *Log) AuditEntries(ctx context.Context, since int64, limit int) ([]api.AuditEntry, error) {
	c := access.From(ctx)
	if err := c.Known(); err != nil {
		return nil, err
	}
	var list []api.AuditEntry
	err := l.entries(ctx, since, func(e api.AuditEntry) bool {
		if c.Owner || e.Tenant == c.Tenant || e.Of == c.Tenant {
			list = append(list, e)
		}
		return len(list) < limit
	})
	return list, err
}

// entries calls each with the entries after since, the oldest first, until it
// returns false.
func (l *Log) entries(ctx context.Context, since int64, each func(api.AuditEntry) bool) error {
	l.mu.Lock()
	files, err := filesIn(l.dir)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for i, path := range files {
		// A file is left out if the next one begins at or before the entry after since.
		if i+1 < len(files) && firstOf(files[i+1]) <= since+1 {
			continue
		}
		more, err := entriesOf(ctx, path, since, each)
		if err != nil {
			return fmt.Errorf("read audit: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

func firstOf(path string) (seq int64) {
	_, _ = fmt.Sscanf(filepath.Base(path), "%016d", &seq)
	return seq
}

func entriesOf(ctx context.Context, path string, since int64, each func(api.AuditEntry) bool) (more bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, maxLine)
	for ctx.Err() == nil {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return true, nil // a line is being written
		}
		if err != nil {
			return false, err
		}
		var e api.AuditEntry
		if json.Unmarshal(line, &e) != nil || e.Seq <= since {
			continue // Verify reports a line that is no entry
		}
		if !each(e) {
			return false, nil
		}
	}
	return false, ctx.Err()
}
