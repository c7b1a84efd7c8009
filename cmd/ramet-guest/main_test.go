package main

import (
	"encoding/json"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/engine/control"
)

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"info": `{"op":"info"}`,
		"fork": `{"op":"fork"}`,
		"fork -n 3 --meta a=b=c --meta=d= --json": `{"op":"fork","count":3,"metadata":{"a":"b=c","d":""}}`,
		"--json fork --count=2":                   `{"op":"fork","count":2}`,
		"snapshot --name good --memory":           `{"op":"snapshot","name":"good","memory":true}`,
		"rollback good":                           `{"op":"rollback","snapshot":"good"}`,
		"rollback":                                `{"op":"rollback"}`,
		"diff sbx_x":                              `{"op":"diff","with":"sbx_x"}`,
		"tag a=b c= d-":                           `{"op":"tag","set":{"a":"b","c":""},"remove":["d"]}`,
	} {
		o, wrong := parse(strings.Fields(args))
		got, err := json.Marshal(o.req)
		if wrong != "" || err != nil || string(got) != want {
			t.Errorf("%s: %s %q %v, want %s", args, got, wrong, err, want)
		}
	}
	for _, args := range []string{"", "rm sbx_x", "exec x", "fork -n", "fork -n 0", "fork -n x", "fork extra", "fork --meta a", "info --nope", "tag", "tag a", "tag -", "tag =b", "rollback a b"} {
		if o, wrong := parse(strings.Fields(args)); wrong == "" {
			t.Errorf("%q is %+v", args, o.req)
		}
	}
}

func TestText(t *testing.T) {
	for want, r := range map[string]control.Reply{
		"parent sbx_a sbx_c\n": {Children: []control.Child{{ID: "sbx_a"}, {Index: 1, Error: &control.Error{}}, {ID: "sbx_c", Index: 2}}},
		"child 2\n":            {Child: &control.Born{ID: "sbx_c", Index: 2}},
		"snapshot snap_a\n":    {Snapshot: &control.Snapshot{ID: "snap_a", Name: "x"}},
		"restored 0\n":         {Restored: &control.Restored{ID: "sbx_a"}},
		"a=1\nb=\n":            {Tagged: &control.Tagged{Metadata: map[string]string{"b": "", "a": "1"}}},
		"":                     {Tagged: &control.Tagged{}},
		"added \"/a\\nb\"\nrenamed \"/\\xff\" -> /c d\nand 7 more\n": {Diff: &control.Diff{Truncated: 7, Changes: []control.Change{
			{Kind: "added", Path: "/a\nb"}, {Kind: "renamed", Path: "/c d", Old: "/\uFFFD", OldExact: []byte("/\xff")}}}},
		"id         sbx_a\nindex      0\nforks      1 of 3 left\ndepth      2 left\nsnapshots  0 of 0 left\nsnapshot   snap_a good\nchild      sbx_b 1\n": {
			Info: &control.Info{ID: "sbx_a", Budget: control.Budget{Forks: control.Left{Limit: 3, Left: 1}, Depth: control.Left{Limit: 2, Left: 2}},
				Snapshots: []control.Snapshot{{ID: "snap_a", Name: "good"}}, Children: []control.Child{{ID: "sbx_b", Index: 1}}}},
	} {
		if got := text(&r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
