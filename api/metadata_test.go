package api

import (
	"fmt"
	"maps"
	"slices"
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

// TestClaimsAreNoLabels follows a key from the sandbox to callers outside, and back.
func TestClaimsAreNoLabels(t *testing.T) {
	v := "v"
	set := map[string]*string{"mine": &v, "other": &v}
	claimed := ChangeClaimed(nil, set, true)
	if want := []string{"mine", "other"}; !slices.Equal(claimed, want) {
		t.Fatalf("claimed %v, want %v", claimed, want)
	}
	metadata := map[string]string{"user": "1", "mine": "v", "other": "v"}
	sb, sn := Sandbox{Metadata: metadata, Claimed: claimed}, Snapshot{Metadata: metadata, Claimed: claimed}
	for what, got := range map[string]Labels{"sandbox": sb.Labels(), "snapshot": sn.Labels()} {
		if !maps.Equal(got, Labels{"user": "1"}) {
			t.Errorf("labels of the %s: %v", what, got)
		}
	}
	for what, got := range map[string]Claims{"sandbox": sb.Claims(), "snapshot": sn.Claims()} {
		if !maps.Equal(got, Claims{"mine": "v", "other": "v"}) {
			t.Errorf("claims of the %s: %v", what, got)
		}
	}
	if len(metadata) != 3 {
		t.Errorf("the metadata was changed in place: %v", metadata)
	}
	for what, c := range map[string]struct {
		change   map[string]*string
		byItself bool
		want     []string
	}{
		"set from outside":     {map[string]*string{"mine": &v}, false, []string{"other"}},
		"removed from outside": {map[string]*string{"other": nil}, false, []string{"mine"}},
		"removed by itself":    {map[string]*string{"mine": nil}, true, []string{"other"}},
		"set again by itself":  {map[string]*string{"mine": &v}, true, []string{"mine", "other"}},
	} {
		if got := ChangeClaimed(claimed, c.change, c.byItself); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	if none := (&Sandbox{}); none.Labels() != nil || len(none.Claims()) != 0 {
		t.Errorf("a sandbox without metadata has %v and %v", none.Labels(), none.Claims())
	}
}
