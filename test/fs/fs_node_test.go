package fs

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// envWithout are features of the fuzzer that are not to be used, with commas
// between them: to find out what else is wrong. See (*fuzzer).has in the guest
// program.
const envWithout = "RAMET_FS_WITHOUT"

// fsResult is what "guest fs run" prints for each case.
type fsResult struct {
	Name  string  `json:"name"`
	Error string  `json:"error"`
	Skip  string  `json:"skip"`
	MS    float64 `json:"ms"`
	Done  bool    `json:"done"`
}

// fsResults reads the output of "guest fs run".
func fsResults(t testing.TB, out string) []fsResult {
	t.Helper()
	var all []fsResult
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var r fsResult
		err := d.Decode(&r)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d cases: %v", len(all), err)
		}
		all = append(all, r)
	}
	if len(all) == 0 || !all[len(all)-1].Done {
		t.Fatalf("the program ended after %d cases: %+v", len(all), all[max(0, len(all)-1):])
	}
	return all[:len(all)-1]
}
