package held

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

const (
	recordSuffix = ".json"
	bodySuffix   = ".body"
	tempPattern  = ".new-*"
	maxRecord    = 4 << 20
)

// disk is the directory of requests.
type disk struct {
	fs  hostfs.FS
	dir string
}

func (d *disk) record(id string) string { return filepath.Join(d.dir, id+recordSuffix) }

func (d *disk) body(id string) string { return filepath.Join(d.dir, id+bodySuffix) }

// load reads all records, and removes what belongs to none: a process was killed while it
// made them, before anybody was told of them.
func (d *disk) load() ([]*Request, error) {
	if err := d.fs.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory of held requests: %w", err)
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("read held requests: %w", err)
	}
	var requests []*Request
	unfinished := map[string]bool{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), recordSuffix)
		if !ok || !validID.MatchString(id) {
			continue
		}
		r, err := d.read(id)
		if err != nil {
			return nil, err
		}
		requests = append(requests, r)
		unfinished[id] = !r.State.Finished()
	}
	for _, e := range entries {
		id, isBody := strings.CutSuffix(e.Name(), bodySuffix)
		if isBody && unfinished[id] || strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		if err := d.remove(filepath.Join(d.dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

func (d *disk) read(id string) (*Request, error) {
	f, err := d.fs.OpenFile(d.record(id), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("read held request: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("read held request: %w", err)
	}
	var r Request
	if err := json.Unmarshal(text, &r); err != nil || r.ID != id {
		return nil, api.Errorf(api.CodeCorrupt, "%s is not the record of a held request", d.record(id))
	}
	r.text(bytesOf)
	return &r, nil
}

// write replaces the record of a request. After an error it may be the old one or the new
// one.
func (d *disk) write(r *Request) error {
	written := *r
	written.Header, written.Trailer = r.Header.Clone(), r.Trailer.Clone()
	written.text(runesOf)
	text, err := json.Marshal(&written)
	if err == nil {
		err = hostfs.Replace(d.fs, d.record(r.ID), tempPattern, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write held request: %w", err)
	}
	return nil
}

// text changes each text of a request that a guest has written. A guest may write bytes that are not
// UTF-8, which JSON has not: in a record each byte is a character.
func (r *Request) text(f func(string) string) {
	r.Target, r.Host = f(r.Target), f(r.Host)
	for _, h := range []http.Header{r.Header, r.Trailer} {
		for _, values := range h {
			for i := range values {
				values[i] = f(values[i])
			}
		}
	}
}

func runesOf(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

func bytesOf(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

// spool writes the body of a request and returns its length and its digest. grow is asked
// for room before each part.
func (d *disk) spool(id string, body io.Reader, grow func(int64) error) (size int64, digest string, err error) {
	hash := sha256.New()
	err = hostfs.Replace(d.fs, d.body(id), tempPattern, func(w io.Writer) error {
		b := make([]byte, 64<<10)
		for {
			n, rerr := body.Read(b)
			if err := grow(int64(n)); err != nil {
				return err
			}
			size += int64(n)
			hash.Write(b[:n])
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			if errors.Is(rerr, io.EOF) {
				return nil
			}
			if rerr != nil {
				return fmt.Errorf("%w: %w", errGuest, rerr)
			}
		}
	})
	if err != nil {
		return size, "", fmt.Errorf("write body of held request: %w", err)
	}
	return size, hex.EncodeToString(hash.Sum(nil)), nil
}

// errGuest is wrapped by errors of the body of a guest.
var errGuest = errors.New("the guest has not sent the body")

func (d *disk) remove(path string) error {
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove held request: %w", err)
	}
	return nil
}
