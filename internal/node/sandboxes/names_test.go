package sandboxes

import (
	"testing"

	"ramet.dev/ramet/api"
)

// TestNamesAreTakenAllOrNone reserves names of which the last one cannot be.
func TestNamesAreTakenAllOrNone(t *testing.T) {
	n := Names{ids: map[owned]string{}}
	for _, c := range []struct {
		what, tenant string
		names        []string
		want         api.Code
	}{
		{"a free one", "a", []string{"", "one"}, ""},
		{"one that is taken", "a", []string{"two", "", "one"}, api.CodeNameTaken},
		{"one that is given twice", "a", []string{"two", "two"}, api.CodeNameTaken},
		{"one that is no name", "a", []string{"two", "no name"}, api.CodeInvalid},
		{"another tenant's", "b", []string{"one"}, ""},
	} {
		if err := n.Reserve(c.tenant, c.names, []string{"first", "second", "third"}); api.CodeOf(err) != c.want {
			t.Errorf("%s: %v", c.what, err)
		}
		if id := n.id("a", "two"); id != "two" {
			t.Errorf("%s: the name before it is that of %s", c.what, id)
		}
	}
	if a, b := n.id("a", "one"), n.id("b", "one"); a != "second" || b != "first" {
		t.Errorf("the names are those of %s and %s", a, b)
	}
	n.Release("a", "one", "")
	if id := n.id("a", "one"); id != "one" {
		t.Errorf("a name that was given up is that of %s", id)
	}
}
