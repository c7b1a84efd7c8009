package explore

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// Options change members of a plan, and make those above them that are absent.
func TestSet(t *testing.T) {
	for _, c := range []struct{ option, want, refused string }{
		{option: "width=3", want: `{"search":{"rounds":2},"width":3}`},
		{option: "search.rounds=4", want: `{"search":{"rounds":4},"width":1}`},
		{option: "limits.timeout_ms=5", want: `{"limits":{"timeout_ms":5},"search":{"rounds":2},"width":1}`},
		{option: "variants=[{name: a}]", want: `{"search":{"rounds":2},"variants":[{"name":"a"}],"width":1}`},
		{option: "search.target=0.5", want: `{"search":{"rounds":2,"target":0.5},"width":1}`},
		{option: "run.shell=a: [", want: `{"run":{"shell":"a: ["},"search":{"rounds":2},"width":1}`}, // what is no YAML is a word
		{option: "run.shell=", want: `{"run":{"shell":""},"search":{"rounds":2},"width":1}`},
		{option: "width.x=3", refused: "width has no members"},
		{option: "width", refused: "is not MEMBER=VALUE"},
		{option: "=3", refused: "is not MEMBER=VALUE"},
	} {
		plan := map[string]any{"width": 1, "search": map[string]any{"rounds": 2}}
		err := set(plan, c.option)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, not %q", c.option, err, c.refused)
			}
			continue
		}
		if got, _ := json.Marshal(plan); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", c.option, got, err)
		}
	}
}

// Variants are all combinations, the last variable fastest.
func TestVary(t *testing.T) {
	list, err := vary([]string{"A=1,2", "B=x,y"})
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]string
	for _, v := range list {
		got = append(got, v.Env)
	}
	if want := []map[string]string{{"A": "1", "B": "x"}, {"A": "1", "B": "y"}, {"A": "2", "B": "x"}, {"A": "2", "B": "y"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	many := "A=" + strings.Repeat("1,", 99) + "1"
	if _, err := vary([]string{many, strings.Replace(many, "A", "B", 1)}); err == nil || !strings.Contains(err.Error(), "more than 1000") {
		t.Errorf("10000 combinations: %v", err)
	}
}

// A file that is no text travels as data.
func TestFilesThatAreNoText(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "raw"), []byte{0xff, 0, 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "plan.yaml")
	text := "run: {argv: [a]}\nvariants: [{files: [{path: /raw, from: raw}]}]\nscore: {by: exit_code, command: {argv: [b], files: [{path: /raw, from: " + dir + "/raw}]}}\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := (&options{file: name}).plan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []api.ExploreFile{p.Variants[0].Files[0], p.Score.Command.Files[0]} {
		if !bytes.Equal(f.Data, []byte{0xff, 0, 1}) || f.Text != "" {
			t.Errorf("it is %+v", f)
		}
	}
}

// Whatever a plan says, it is refused or one that the daemon takes; JSON says the same as YAML.
func FuzzPlan(f *testing.F) {
	f.Add([]byte("width: 2\nrun: {argv: [a]}\nsearch: {strategy: halving, factor: 1.5}"))
	f.Add([]byte(`{"run":{"shell":"a"},"variants":[{"env":{"A":"1"}}],"score":{"by":"json","path":"a.b[0]","at_least":1e3}}`))
	f.Add([]byte("run: {code: 'x = 1', language: python}\nscore: {by: value}\nthen: merge\nmerge: {exclude: ['*.o']}"))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("from")) {
			return // names of files of this machine
		}
		p, err := (&options{file: "-"}).plan(nil, bytes.NewReader(text))
		if err != nil {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("%v has the code %s", err, api.CodeOf(err))
			}
			return
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := (&options{file: "-"}).plan(nil, io.Reader(bytes.NewReader(out)))
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if second, _ := json.Marshal(again); !bytes.Equal(out, second) {
			t.Fatalf("%s became %s", out, second)
		}
	})
}

// TestNumbersInEnvironments takes numbers and truth values in environments for texts.
func TestNumbersInEnvironments(t *testing.T) {
	doc := map[string]any{}
	for _, o := range []string{"run.argv=[a]", "run.env={N: 1, F: 0.5, B: true, S: x}", "variants=[{env: {M: 2}}]"} {
		if err := set(doc, o); err != nil {
			t.Fatal(err)
		}
	}
	p, err := decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"N": "1", "F": "0.5", "B": "true", "S": "x"}
	if !maps.Equal(p.Run.Env, want) || p.Variants[0].Env["M"] != "2" {
		t.Errorf("%v and %v", p.Run.Env, p.Variants[0].Env)
	}
}
