package archtest

import (
	"bytes"
	"go/ast"
	"testing"
)

// A package is a page of ideas, and a type is one of them.
const (
	maxPackageLines = 2500 // of all files but tests
	maxMethods      = 30   // of one type, those of embedded types not counted
	// maxVocabulary is for package api alone: it has the words of all areas, and is one package to be
	// one vocabulary. Each area adds to it.
	maxVocabulary = 5000
)

// largePackages and largeTypes are what exceeds the limits, with its size as the limit of
// its own. An entry only ever gets smaller.
var largePackages = map[string]int{}

var largeTypes = map[string]int{}

func TestPackagesAreSmall(t *testing.T) {
	lines := map[string]int{}
	for _, s := range goFiles(t) {
		if !s.isTest() && !within(s.dir, []string{"test"}) {
			lines[s.dir] += bytes.Count(s.text, []byte("\n"))
		}
	}
	if lines["api"] > maxVocabulary {
		t.Errorf("api has %d lines, more than %d", lines["api"], maxVocabulary)
	}
	delete(lines, "api")
	checkSizes(t, "lines", lines, maxPackageLines, largePackages)
}

func TestTypesAreSmall(t *testing.T) {
	methods := map[string]int{}
	for _, s := range goFiles(t) {
		if s.isTest() || within(s.dir, []string{"test"}) {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[s.dir+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
	}
	checkSizes(t, "methods", methods, maxMethods, largeTypes)
}

// checkSizes compares sizes with a limit, and with the limits of their own that exceptions
// have. An exception that is larger than needed is a fault too: it would hide growth.
func checkSizes(t *testing.T, unit string, sizes map[string]int, limit int, exceptions map[string]int) {
	t.Helper()
	for name, size := range sizes {
		own, excepted := exceptions[name]
		switch {
		case !excepted && size > limit:
			t.Errorf("%s has %d %s, more than %d: split it by idea", name, size, unit, limit)
		case excepted && size > own:
			t.Errorf("%s has %d %s, more than the %d it had: split it by idea", name, size, unit, own)
		case excepted && size <= limit:
			t.Errorf("%s has %d %s: remove its exception", name, size, unit)
		case excepted && size < own-own/20:
			t.Errorf("%s has %d %s: lower its exception of %d", name, size, unit, own)
		}
	}
	for name := range exceptions {
		if sizes[name] == 0 {
			t.Errorf("%s is excepted and does not exist", name)
		}
	}
}

// receiver returns the name of the type in a receiver.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
