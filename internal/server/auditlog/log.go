package auditlog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

const (
	// fileSize is the size at which the chain goes on in another file.
	fileSize = 64 << 20
	// maxLine bounds a line that is read: a fork of 1000 children has 30 KiB.
	maxLine    = 1 << 20
	headFile   = "head"
	fileSuffix = ".jsonl"
	// mostPending is how many lines wait for a disk that is full.
	mostPending = 10000
)

// Log is the audit log of a daemon. It is safe for concurrent use.
type Log struct {
	dir  string
	size int64 // of a file
	fs   hostfs.FS
	log  *slog.Logger

	mu      sync.Mutex
	file    hostfs.File
	written int64
	// listed says that the directory with the name of file was synced.
	listed bool
	seq    int64
	prev   string
	head   hostfs.File
	// pending are lines that could not be written yet.
	pending []api.AuditEntry
}

// Open opens the audit in dir, which it makes. One process may have it open.
func Open(dir string, log *slog.Logger) (*Log, error) { return openIn(hostfs.OS, dir, log) }

// openIn is Open with a given file system.
func openIn(fsys hostfs.FS, dir string, log *slog.Logger) (_ *Log, err error) {
	l := &Log{dir: dir, size: fileSize, fs: fsys, log: log}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open audit: %w", err)
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if l.head, err = l.fs.OpenFile(filepath.Join(dir, headFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open audit: %w", err)
	}
	files, err := filesIn(dir)
	if err != nil {
		return nil, err
	}
	var torn int64
	if len(files) > 0 {
		if torn, err = l.resume(files); err != nil {
			return nil, fmt.Errorf("open audit: %w", err)
		}
	}
	return l, l.explain(torn)
}

// filesIn returns the files of an audit, in the order of their lines.
func filesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	var files []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), fileSuffix); ok && len(name) == 16 {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files) // the numbers have the same length
	return files, nil
}

// resume goes on after the last whole line of files. It removes a partial line after it: a
// daemon died while it wrote that line, and had reported its change to no client. A daemon
// that died when it had begun a file leaves one without a whole line; then the last line is
// in the file before.
func (l *Log) resume(files []string) (torn int64, err error) {
	last := len(files) - 1
	if l.file, err = l.fs.OpenFile(files[last], os.O_RDWR, 0o600); err != nil {
		return 0, err
	}
	if l.written, torn, err = l.follow(l.file); err != nil {
		return 0, err
	}
	if torn > 0 {
		if err := l.file.Truncate(l.written); err != nil {
			return 0, err
		}
	}
	for n, whole := last-1, l.written; n >= 0 && whole == 0; n-- {
		f, err := l.fs.OpenFile(files[n], os.O_RDONLY, 0)
		if err != nil {
			return 0, err
		}
		whole, _, err = l.follow(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
	}
	return torn, nil
}

// follow makes the last whole line of a file the one that the next line follows. It returns
// the bytes of all whole lines, and those of a partial line after them.
func (l *Log) follow(f hostfs.File) (whole, torn int64, err error) {
	data := bufio.NewReaderSize(f, maxLine)
	for {
		line, err := data.ReadSlice('\n')
		if err == io.EOF {
			return whole, int64(len(line)), nil
		}
		if err != nil {
			return whole, 0, fmt.Errorf("%s: %w", filepath.Base(f.Name()), err)
		}
		whole += int64(len(line))
		l.seq, l.prev = seqOf(line), digest(bytes.TrimSuffix(line, []byte("\n")))
	}
}

// explain writes an entry about differences from the state that an earlier daemon left.
func (l *Log) explain(torn int64) error {
	seq, sum, err := l.readHead()
	if err != nil {
		return err
	}
	d := api.AuditDetails{Torn: torn}
	if seq > l.seq || seq == l.seq && sum != l.prev {
		d.Missing = headText(seq, sum)
		l.log.Error("the end of the audit is missing", "expected", d.Missing, "found", headText(l.seq, l.prev))
		l.seq = max(l.seq, seq) // numbers are not used twice
	}
	if d.Torn == 0 && d.Missing == "" {
		return nil
	}
	return l.append(api.AuditEntry{Time: time.Now().UTC(), Action: "audit-resumed", Result: "ok", Details: &d})
}

func seqOf(line []byte) int64 {
	var e struct {
		Seq int64 `json:"seq"`
	}
	_ = json.Unmarshal(line, &e) // Verify reports a line that is no entry
	return e.Seq
}

func digest(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

func headText(seq int64, sum string) string { return strconv.FormatInt(seq, 10) + ":" + sum }

func parseHead(text string) (seq int64, sum string, err error) {
	number, sum, _ := strings.Cut(strings.TrimSpace(text), ":")
	seq, err = strconv.ParseInt(number, 10, 64)
	if raw, herr := hex.DecodeString(sum); err != nil || herr != nil || seq < 1 || len(raw) != sha256.Size {
		return 0, "", api.Invalid("head", "%.100q is not NUMBER:DIGEST, as a verification says", text)
	}
	return seq, sum, nil
}

// readHead returns the recorded number and digest of the last line.
func (l *Log) readHead() (int64, string, error) {
	text, err := io.ReadAll(io.NewSectionReader(l.head, 0, 200))
	if err != nil {
		return 0, "", fmt.Errorf("read the audit's head: %w", err)
	}
	if len(text) == 0 {
		return 0, "", nil
	}
	seq, sum, err := parseHead(string(text))
	if err != nil {
		return 0, "", nil // it was being written: the chain itself counts
	}
	return seq, sum, nil
}

// Close ends the audit.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range []hostfs.File{l.file, l.head} {
		if f != nil {
			errs = append(errs, f.Sync(), f.Close())
		}
	}
	l.file, l.head = nil, nil
	return errors.Join(errs...)
}

// append writes an entry. If the disk is full, the entry is kept and written with the next
// one, and AuditReady returns an error until then.
func (l *Log) append(e api.AuditEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) < mostPending {
		l.pending = append(l.pending, e)
	}
	return l.flush()
}

// AppendAudit is append for callers that go on without the entry: it implements
// service.Audit.
func (l *Log) AppendAudit(e api.AuditEntry) {
	if err := l.append(e); err != nil {
		l.log.Error("write audit", "action", e.Action, "error", err)
	}
}

// AuditReady returns an error while entries cannot be written: changes are refused then.
func (l *Log) AuditReady() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.flush(); err != nil {
		return api.Errorf(api.CodeNoSpace, "the audit cannot be written, and nothing is changed without it: %w", err)
	}
	return nil
}

func (l *Log) flush() error {
	for len(l.pending) > 0 {
		if err := l.write(l.pending[0]); err != nil {
			return err
		}
		l.pending = l.pending[1:]
	}
	l.pending = nil
	return nil
}

func (l *Log) write(e api.AuditEntry) error {
	if l.head == nil {
		return errors.New("write audit: it is closed")
	}
	e.Seq, e.Prev = l.seq+1, l.prev
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	if l.file == nil || l.written > 0 && l.written+int64(len(line)) >= l.size {
		if err := l.rotate(e.Seq); err != nil {
			return fmt.Errorf("write audit: %w", err)
		}
	}
	if !l.listed { // a power failure would take the file with all its lines
		if err := l.fs.SyncDir(l.dir); err != nil {
			return fmt.Errorf("write audit: %w", err)
		}
		l.listed = true
	}
	if _, err := l.file.WriteAt(append(line, '\n'), l.written); err != nil {
		_ = l.file.Truncate(l.written) // a partial line does not count; the next line is written over it
		return fmt.Errorf("write audit: %w", err)
	}
	l.written += int64(len(line)) + 1
	l.seq, l.prev = e.Seq, digest(line)
	text := headText(l.seq, l.prev) + "\n"
	if _, err := l.head.WriteAt([]byte(text), 0); err != nil {
		_ = l.head.Truncate(0)                             // half of it with the rest of the one before would claim a line that never was
		l.log.Warn("write the audit's head", "error", err) // the line is there, and the next one writes it again
	}
	return nil
}

// rotate goes on in another file.
func (l *Log) rotate(seq int64) error {
	f, err := l.fs.OpenFile(filepath.Join(l.dir, fmt.Sprintf("%016d%s", seq, fileSuffix)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
			l.log.Warn("close a file of the audit", "error", err)
		}
	}
	l.file, l.written, l.listed = f, 0, false
	return nil
}
