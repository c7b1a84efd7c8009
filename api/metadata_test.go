package api

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestValidMetadata(t *testing.T) {
	many := map[string]string{}
	for i := range MaxMetadata {
		many[fmt.Sprint("k", i)] = ""
	}
	for _, ok := range []map[string]string{
		nil, many, {"a": ""}, {"example.com/step-2_b": "with space, = and ü\n"}, {strings.Repeat("k", 128): strings.Repeat("v", 1024)},
	} {
		if err := ValidMetadata("metadata", ok); err != nil {
			t.Errorf("%.80v: %v", ok, err)
		}
	}
	tooMany := maps.Clone(many)
	tooMany["one"] = "more"
	for _, bad := range []map[string]string{
		tooMany, {"": "v"}, {"a=b": "v"}, {"-a": "v"}, {"a-": "v"}, {"a b": "v"}, {"ü": "v"}, {"a\n": "v"},
		{strings.Repeat("k", 129): "v"}, {"k": strings.Repeat("v", 1025)}, {"k": "\xff"}, {"k": "a\x00b"},
	} {
		err := ValidMetadata("meta", bad)
		if CodeOf(err) != CodeInvalid || AsError(err).Field != "meta" {
			t.Errorf("%.80v: %v", bad, err)
		}
	}
}

func TestChangeMetadata(t *testing.T) {
	one := "1"
	was := map[string]string{"a": "0", "b": "0"}
	got, err := ChangeMetadata(was, map[string]*string{"a": &one, "b": nil, "c": &one, "gone": nil})
	if want := map[string]string{"a": "1", "c": "1"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("changed to %v (%v), want %v", got, err, want)
	}
	if was["a"] != "0" || len(was) != 2 {
		t.Errorf("the old map became %v", was)
	}
	full := map[string]string{}
	for i := range MaxMetadata {
		full[fmt.Sprint("k", i)] = ""
	}
	if _, err := ChangeMetadata(full, map[string]*string{"a": &one}); CodeOf(err) != CodeInvalid {
		t.Errorf("one too many: %v", err)
	}
	if _, err := ChangeMetadata(full, map[string]*string{"a": &one, "k0": nil}); err != nil {
		t.Errorf("one for another: %v", err)
	}
	if _, err := ChangeMetadata(nil, map[string]*string{"a b": nil}); CodeOf(err) != CodeInvalid {
		t.Errorf("removing what is no key: %v", err)
	}
}
