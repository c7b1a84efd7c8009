package control

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Request{
		`{"op":"info"}`: {Op: OpInfo},
		` {"op":"fork","count":3,"metadata":{"a":"b"}} `:   {Op: OpFork, Count: new(3), Metadata: map[string]string{"a": "b"}},
		`{"op":"tag","set":{"a":"\u0000"},"remove":["b"]}`: {Op: OpTag, Set: map[string]string{"a": "\x00"}, Remove: []string{"b"}},
	} {
		if got, err := Parse([]byte(line)); err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{``, `null`, `[]`, `1`, `{`, `{"op":1}`, `{"op":"fork","sandbox":"sbx_a"}`, `{"op":"info"}{"op":"info"}`, `{"count":1e99}`} {
		if r, err := Parse([]byte(line)); err == nil {
			t.Errorf("%q is %+v", line, r)
		}
	}
}

// FuzzParse reads what a guest may say. What is understood must mean the same
// when it is said again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"op":"fork","count":3,"metadata":{"a":"b"}}`))
	f.Add([]byte(`{"op":"tag","set":{"a":""},"remove":["b"]}`))
	f.Add([]byte(`{"op":"rollback","snapshot":"x"}{`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if second, err := json.Marshal(again); err != nil || string(second) != string(out) {
			t.Fatalf("%s became %s: %v", out, second, err)
		}
	})
}
