package sandbox

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestExactPaths checks that JSON keeps the bytes of every path that a daemon tells of, and
// says them twice only where it must.
func TestExactPaths(t *testing.T) {
	for _, path := range []string{"/tmp/ä \n\"", "/tmp/a\xff", "/tmp/\xed\xa0\x80"} {
		for _, v := range []any{
			&FileInfo{Path: path},
			&FileEvent{Path: path},
			&Change{Path: path, OldPath: path + "2"},
			&MergeChange{Path: path, OldPath: path + "2"},
			&MergeConflict{Path: path},
		} {
			doc, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if twice := strings.Contains(string(doc), "path_base64"); twice != (exactBytes(path) != nil) {
				t.Errorf("%q: %s", path, doc)
			}
			got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := json.Unmarshal(doc, got); err != nil || !reflect.DeepEqual(got, v) {
				t.Errorf("%#v came back as %#v, %v", v, got, err)
			}
		}
	}
}
