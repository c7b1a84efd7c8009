package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestExactPaths checks that JSON keeps the bytes of every path that a daemon tells of, those
// in symbolic links among them, and says them twice only where it must.
func TestExactPaths(t *testing.T) {
	for path, twice := range map[string]bool{"/tmp/ä \n\"": false, "/tmp/\uFFFD": false, "/tmp/a\xff": true, "/tmp/\xed\xa0\x80": true} {
		for _, v := range []any{
			&FileInfo{Path: path, Target: path + "2"},
			&FileInfo{Target: path},
			&FileEvent{Path: path},
			&Change{Path: path, OldPath: path + "2"},
			&MergeChange{Path: path, OldPath: path + "2"},
			&MergeConflict{Path: path, Theirs: &MergeVersion{Target: path + "2"}},
			&MergeVersion{Target: path},
		} {
			doc, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(doc), `_base64"`) != twice {
				t.Errorf("%q: %s", path, doc)
			}
			got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := json.Unmarshal(doc, got); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("%#v came back as %#v, %v", v, got, err)
			}
		}
	}
}

// TestNoHTML checks that whoever encodes an answer decides whether what HTML would act on is
// escaped in it.
func TestNoHTML(t *testing.T) {
	for _, escape := range []bool{false, true} {
		var doc bytes.Buffer
		enc := json.NewEncoder(&doc)
		enc.SetEscapeHTML(escape)
		if err := enc.Encode(Diff{Changes: []Change{{Hunks: "-<b>\n+a && b\n"}}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(doc.String(), `"-<b>\n+a && b\n"`); got == escape {
			t.Errorf("escape %t: %s", escape, doc.String())
		}
	}
}
