package auditlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

func open(t *testing.T, dir string, size int64) *Log {
	t.Helper()
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.size = size
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// filled returns an audit of n lines in several files, closed.
func filled(t *testing.T, n int) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	l := open(t, dir, 1000)
	for i := range n {
		if err := l.append(api.AuditEntry{Time: time.Unix(int64(i), 0).UTC(), Action: "fork-sandbox", Object: fmt.Sprint("sbx_", i), Result: "ok"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filesIn(dir)
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return dir, files
}

func verify(t *testing.T, l *Log, head string) *api.AuditReport {
	t.Helper()
	r, err := l.VerifyAudit(context.Background(), head)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChainGoesOnOverFilesAndDaemons(t *testing.T) {
	dir, files := filled(t, 30)
	l := open(t, dir, 1000)
	r := verify(t, l, "")
	if !r.OK || r.Entries != 30 || r.First != 1 || r.Files != len(files) || !strings.HasPrefix(r.Head, "30:") {
		t.Fatalf("%+v", r)
	}
	anchor := r.Head
	if err := l.append(api.AuditEntry{Action: "x", Result: "ok"}); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, l, anchor); !r.OK || r.Entries != 31 {
		t.Errorf("with an anchor: %+v", r)
	}
	var seen []int64
	if err := l.entries(context.Background(), 27, func(e api.AuditEntry) bool {
		seen = append(seen, e.Seq)
		return len(seen) < 3
	}); err != nil || fmt.Sprint(seen) != "[28 29 30]" {
		t.Errorf("entries %v, %v", seen, err)
	}
	if err := os.Remove(files[0]); err != nil { // put aside
		t.Fatal(err)
	}
	if r := verify(t, l, ""); !r.OK || r.First == 1 {
		t.Errorf("without the oldest file: %+v", r)
	}
}

// TestTamperingIsFound changes the files in all ways, while no daemon runs.
func TestTamperingIsFound(t *testing.T) {
	edit := func(path string, change func(lines [][]byte) [][]byte) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		return os.WriteFile(path, bytes.Join(change(lines[:len(lines)-1]), nil), 0o600)
	}
	swap := func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }
	for name, tamper := range map[string]func(dir string, files []string) error{
		"a changed line": func(_ string, f []string) error {
			return edit(f[1], func(l [][]byte) [][]byte { l[1] = bytes.Replace(l[1], []byte("sbx_"), []byte("sbx-"), 1); return l })
		},
		"a changed first line": func(_ string, f []string) error {
			return edit(f[0], func(l [][]byte) [][]byte { l[0] = bytes.Replace(l[0], []byte("ok"), []byte("no"), 1); return l })
		},
		"a changed last line": func(_ string, f []string) error {
			return edit(f[len(f)-1], func(l [][]byte) [][]byte {
				l[len(l)-1] = bytes.Replace(l[len(l)-1], []byte("sbx_"), []byte("sbx-"), 1)
				return l
			})
		},
		"a space": func(_ string, f []string) error {
			return edit(f[1], func(l [][]byte) [][]byte { l[1] = append([]byte(" "), l[1]...); return l })
		},
		"a removed line": func(_ string, f []string) error {
			return edit(f[1], func(l [][]byte) [][]byte { return append(l[:1:1], l[2:]...) })
		},
		"an added line": func(_ string, f []string) error {
			return edit(f[1], func(l [][]byte) [][]byte { return append(l, l[0]) })
		},
		"moved lines":        func(_ string, f []string) error { return edit(f[1], swap) },
		"a removed file":     func(_ string, f []string) error { return os.Remove(f[1]) },
		"the last file gone": func(_ string, f []string) error { return os.Remove(f[len(f)-1]) },
		"all files gone": func(_ string, f []string) error {
			for _, p := range f {
				if err := os.Remove(p); err != nil {
					return err
				}
			}
			return nil
		},
		"a shorter last file": func(_ string, f []string) error {
			return edit(f[len(f)-1], func(l [][]byte) [][]byte { return l[:len(l)-1] })
		},
		"garbage": func(_ string, f []string) error {
			return edit(f[1], func(l [][]byte) [][]byte { l[1] = []byte("{}garbage\n"); return l })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := filled(t, 30)
			if err := tamper(dir, files); err != nil {
				t.Fatal(err)
			}
			l := open(t, dir, 1000)
			if r := verify(t, l, ""); r.OK {
				t.Errorf("%+v", r)
			}
			if err := l.append(api.AuditEntry{Action: "later", Result: "ok"}); err != nil {
				t.Fatal(err)
			}
			if r := verify(t, l, ""); r.OK {
				t.Errorf("later: %+v", r)
			}
		})
	}
}

// TestANewChainIsFoundByAnAnchor: whoever writes all anew, the head included, is
// found by who kept a head.
func TestANewChainIsFoundByAnAnchor(t *testing.T) {
	dir, _ := filled(t, 30)
	anchor := verify(t, open(t, dir, 1000), "").Head
	other := open(t, t.TempDir(), 1000)
	for range 40 {
		if err := other.append(api.AuditEntry{Action: "forged", Result: "ok"}); err != nil {
			t.Fatal(err)
		}
	}
	if r := verify(t, other, ""); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := verify(t, other, anchor); r.OK {
		t.Errorf("with an anchor: %+v", r)
	}
	if _, err := other.VerifyAudit(context.Background(), "30:xyz"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("an anchor that is none: %v", err)
	}
}

// TestHalfALineOfACrashIsRemoved: a daemon that died while it wrote leaves a chain
// that is whole, and says what was there.
func TestHalfALineOfACrashIsRemoved(t *testing.T) {
	dir, files := filled(t, 30)
	f, err := os.OpenFile(files[len(files)-1], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"seq":31,"pre`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l := open(t, dir, 1000)
	r := verify(t, l, "")
	if !r.OK || r.Entries != 31 {
		t.Errorf("%+v", r)
	}
	var last api.AuditEntry
	if err := l.entries(context.Background(), 30, func(e api.AuditEntry) bool { last = e; return true }); err != nil {
		t.Fatal(err)
	}
	if last.Details == nil || last.Details.Torn != 14 {
		t.Errorf("%+v", last)
	}
}

// TestTheHeadMayLagBehind: a daemon that died between the line and the head.
func TestTheHeadMayLagBehind(t *testing.T) {
	dir, _ := filled(t, 30)
	if err := os.WriteFile(filepath.Join(dir, headFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, 1000)
	if err := l.append(api.AuditEntry{Action: "x", Result: "ok"}); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, l, ""); !r.OK {
		t.Errorf("%+v", r)
	}
}

func TestAFullDiskHoldsChangesUp(t *testing.T) {
	l := open(t, t.TempDir(), 1000)
	if err := l.append(api.AuditEntry{Action: "a", Result: "ok"}); err != nil {
		t.Fatal(err)
	}
	whole := l.file
	readonly, err := os.Open(whole.Name())
	if err != nil {
		t.Fatal(err)
	}
	l.file = readonly // a disk that takes nothing
	if err := l.append(api.AuditEntry{Action: "b", Result: "ok"}); err == nil {
		t.Fatal("it was written")
	}
	if err := l.AuditReady(); api.CodeOf(err) != api.CodeNoSpace {
		t.Errorf("ready: %v", err)
	}
	readonly.Close()
	l.file = whole
	if err := l.AuditReady(); err != nil {
		t.Error(err)
	}
	if r := verify(t, l, ""); !r.OK || r.Entries != 2 {
		t.Errorf("%+v", r)
	}
}

// TestNobodyIsRefused reads on behalf of nobody.
func TestNobodyIsRefused(t *testing.T) {
	l := open(t, t.TempDir(), fileSize)
	if _, err := l.AuditEntries(context.Background(), 0, 1); api.CodeOf(err) != api.CodeUnknownUser {
		t.Errorf("%v", err)
	}
}
