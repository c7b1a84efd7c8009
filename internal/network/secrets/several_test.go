package secrets

import (
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

func entry(name, value, header string, names ...string) Entry {
	return Entry{Name: name, Value: NewValue(value), Binding: Binding{Names: names, Header: header}}
}

// TestSeveralSecretsAreSetTogetherOrNotAtAll sets, refuses and takes back secrets.
func TestSeveralSecretsAreSetTogetherOrNotAtAll(t *testing.T) {
	s, err := Open(hostfs.OS, t.TempDir()+"/secrets")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set("t", "OLD", NewValue("one"), Binding{Names: []string{"a.example"}, Header: "X-Key", Methods: []string{"GET"}}, nil); err != nil {
		t.Fatal(err)
	}
	expect := func(when, value string, count int, names ...string) {
		t.Helper()
		info, v, err := s.Get("t", "OLD")
		if err != nil || v.Reveal() != value || !slices.Equal(info.Binding.Names, names) || !slices.Equal(info.Binding.Methods, []string{"GET"}) {
			t.Errorf("%s: OLD is %q of %+v, %v", when, v.Reveal(), info, err)
		}
		if list, err := s.List("t"); err != nil || len(list) != count {
			t.Errorf("%s: there are %v, %v", when, list, err)
		}
	}
	for name, bad := range map[string][]Entry{
		"a header of another": {entry("NEW", "v", "X-Key", "b.example"), entry("OLD", "v", "X-Other", "b.example")},
		"a bad server":        {entry("NEW", "v", "X-Key", "b.example"), entry("OLD", "v", "X-Key", "*.example")},
		"a bad value":         {entry("NEW", "v", "X-Key", "b.example"), entry("OLD", "a\nb", "X-Key", "b.example")},
	} {
		checked := s.Check("t", bad)
		if _, _, err := s.SetAll("t", bad); err == nil || checked == nil || err.Error() != checked.Error() {
			t.Errorf("%s: %v, and the check says %v", name, err, checked)
		}
		expect(name, "one", 1, "a.example")
	}
	good := []Entry{entry("NEW", "v", "X-Key", "b.example"), entry("OLD", "two", "x-key", "b.example")}
	if err := s.Check("t", good); err != nil {
		t.Fatal(err)
	}
	expect("after a check", "one", 1, "a.example")
	undo, _, err := s.SetAll("t", good)
	if err != nil {
		t.Fatal(err)
	}
	expect("set", "two", 2, "a.example", "b.example")
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	expect("taken back", "one", 1, "a.example")
	undo, _, err = s.SetAll("t", good)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set("t", "OLD", NewValue("three"), Binding{Names: []string{"c.example"}, Header: "X-Key", Methods: []string{"GET"}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	expect("changed meanwhile", "three", 1, "c.example")
	if err := s.Check("u", good); api.CodeOf(err) != "" {
		t.Errorf("secrets of another tenant count: %v", err)
	}
}
