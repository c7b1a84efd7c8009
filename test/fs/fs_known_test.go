package fs

import (
	"testing"
)

// fsKnown are the cases that are known to fail, with the reason. It is to be
// fixed, or cannot be, which the reason says then.
var fsKnown = map[string]string{
	"open/nofollow-directory-link": "gVisor follows a link in spite of O_NOFOLLOW if there is O_DIRECTORY",
	"chown/same-foreign-group":     "gVisor refuses an owner who is not in it the group that the file has already (vfs.CheckSetStat)",
}

// judge compares the results of a run with what is expected. No more may fail
// than what is known to, and no less, or fsKnown says what is not true.
func judge(t *testing.T, mode string, least int, out string) {
	t.Helper()
	results := fsResults(t, out)
	failed, ms := 0, 0.0
	for _, r := range results {
		ms += r.MS
		why := fsKnown[r.Name]
		switch {
		case r.Skip != "":
			t.Logf("skip: %s: %s", r.Name, r.Skip)
		case r.Error == "" && why != "":
			t.Errorf("%s (%s) works now; take it out of fsKnown: %s", r.Name, mode, why)
		case r.Error != "" && why != "":
			failed++
			t.Logf("known: %s: %s (%s)", r.Name, r.Error, why)
		case r.Error != "":
			failed++
			t.Errorf("%s (%s): %s", r.Name, mode, r.Error)
		}
	}
	t.Logf("%s: %d cases, %d failed, %.0f ms", mode, len(results), failed, ms)
	if len(results) < least {
		t.Errorf("there were only %d cases", len(results))
	}
}
