package console

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/api"
)

// TestLinesOfLongWork writes nothing of short work, and one line for each phase of long work.
func TestLinesOfLongWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newLineProgress(&out)
		p.Update(api.Progress{Phase: "download"})
		<-time.After(silentFor / 2)
		p.End(true)
		<-time.After(silentFor)
		if out.Len() > 0 {
			t.Errorf("short work writes %q", out.String())
		}
		p = newLineProgress(&out)
		p.Update(api.Progress{Phase: "download"})
		p.Update(api.Progress{Phase: "download", Done: 1})
		<-time.After(2 * silentFor)
		p.Update(api.Progress{Phase: "unpack\x1b[1m"})
		p.End(true)
		p.Update(api.Progress{Phase: "late"})
		if want := "ramet: download …\nramet: unpack?[1m …\n"; out.String() != want {
			t.Errorf("long work writes %q, not %q", out.String(), want)
		}
	})
}
