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
	f.Add([]byte(`{"op":"info","OP":"fork"}`))
	f.Add([]byte(`{"op":"info","op":"fork"}`))
	f.Add([]byte(`{"op":"rollback","snapshot":"x"}{`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := Parse(line)
		if err != nil {
			return
		}
		// A reader that takes names as they are, and knows no more than JSON, sees the same.
		var plain map[string]any
		if err := json.Unmarshal(line, &plain); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if op, _ := plain["op"].(string); op != string(r.Op) {
			t.Fatalf("%s is the operation %q, and %q as JSON", line, r.Op, op)
		}
		for name := range plain {
			if !fields[name] {
				t.Fatalf("%s has a field %q", line, name)
			}
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

// TestNamesAreExact gives requests that another reader could take for others.
func TestNamesAreExact(t *testing.T) {
	for line, want := range map[string]string{
		`{"op":"info","OP":"fork"}`:                          `unknown field "OP"`,
		`{"Op":"fork"}`:                                      `unknown field "Op"`,
		`{"op":"info","op":"fork"}`:                          `field "op" is said twice`,
		`{"op":"info","\u006fp":"fork"}`:                     `field "op" is said twice`,
		`{"op":"fork","\u212ait":1}`:                         "unknown field \"\u212ait\"", // a Kelvin sign
		`{"op":"tag","set":{"a":"1","a":"2"}}`:               `field "a" is said twice`,
		`{"op":"fork","metadata":{"a":"1"},"metadata":null}`: `field "metadata" is said twice`,
		`{"op":"fork","counts":1}`:                           `unknown field "counts"`,
	} {
		if _, err := Parse([]byte(line)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, not %s", line, err, want)
		}
	}
	r, err := Parse([]byte(`{"op":"tag","set":{"op":"op","A":"1","a":"2"},"remove":["op","op"]}`))
	if err != nil || len(r.Set) != 3 || len(r.Remove) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
