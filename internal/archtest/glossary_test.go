package archtest

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// typeName is a type with the name of its package, in backquotes.
var typeName = regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]*)`")

// TestGlossaryNamesTypes checks that the types that the glossary names exist.
func TestGlossaryNamesTypes(t *testing.T) {
	types := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^(?:type |\t)([A-Z][A-Za-z]*)(?:\[[^\]]*\])? (?:=|struct|interface|string|int|uint|map|\[)`)
	for _, f := range ourFiles(t) {
		if path.Ext(f) != ".go" || strings.HasSuffix(f, "_test.go") {
			continue
		}
		text := string(read(t, f))
		name := regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(text)
		for _, m := range declared.FindAllStringSubmatch(text, -1) {
			types[name[1]+"."+m[1]] = true
		}
	}
	named := typeName.FindAllStringSubmatch(string(read(t, "docs/glossary.md")), -1)
	if len(named) < 50 {
		t.Errorf("the glossary names %d types", len(named))
	}
	for _, m := range named {
		if !types[m[1]+"."+m[2]] {
			t.Errorf("docs/glossary.md names %s.%s, which is no type", m[1], m[2])
		}
	}
}
