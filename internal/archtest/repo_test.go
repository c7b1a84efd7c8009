package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "ramet.dev/ramet"

// rootDir is the top of the repository, seen from this package.
const rootDir = "../.."

// notOurs are directories that a build makes. They matter only where git cannot
// be asked.
var notOurs = []string{".git", ".cache", "bin"}

// ourFiles returns the files of the repository, relative to its top, with those
// that are not committed yet.
func ourFiles(t *testing.T) []string {
	t.Helper()
	files, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(files)
}

// listed finds the files for ourFiles, once for all tests. Where git does not answer (a
// source archive, or a clone of another user) it is all files but those of notOurs.
var listed = sync.OnceValues(func() ([]string, error) {
	list := exec.Command("git", "-C", rootDir, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := list.Output(); err == nil && len(out) > 0 {
		files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		return slices.DeleteFunc(files, func(f string) bool {
			_, err := os.Lstat(filepath.Join(rootDir, f))
			return err != nil // removed and not yet committed
		}), nil
	}
	var files []string
	err := filepath.WalkDir(rootDir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(rootDir, p)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && slices.Contains(notOurs, rel):
			return fs.SkipDir
		case d.Type().IsRegular():
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	return files, err
})

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(rootDir, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// source is one Go file.
type source struct {
	file string // relative to the top
	dir  string // of file; "." is the top
	text []byte
	fset *token.FileSet
	ast  *ast.File
}

func (s *source) isTest() bool { return strings.HasSuffix(s.file, "_test.go") }

func (s *source) at(n ast.Node) token.Position { return s.fset.Position(n.Pos()) }

// goFiles returns all Go files of the repository. Tests must not change them.
func goFiles(t *testing.T) []*source {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files were found")
	}
	return files
}

// parsed parses the files for goFiles, once for all tests.
var parsed = sync.OnceValues(func() ([]*source, error) {
	all, err := listed()
	if err != nil {
		return nil, err
	}
	var out []*source
	for _, f := range all {
		if path.Ext(f) != ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(rootDir, f))
		if err != nil {
			return nil, err
		}
		s, err := parseText(f, text)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
})

func parse(t *testing.T, file string, text []byte) *source {
	t.Helper()
	s, err := parseText(file, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parseText(file string, text []byte) (s *source, err error) {
	s = &source{file: file, dir: path.Dir(file), text: text, fset: token.NewFileSet()}
	s.ast, err = parser.ParseFile(s.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

// maxLines is the length from which on nobody dares to split a file any more.
const maxLines = 600

func TestFilesAreShort(t *testing.T) {
	for _, s := range goFiles(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it by idea", s.file, n, maxLines)
		}
	}
}

// TestEveryPackageSaysWhatItIsFor wants the package comment where readers look
// for it: in doc.go, in main.go, or in the only file.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	packages := map[string][]*source{}
	for _, s := range goFiles(t) {
		if !s.isTest() {
			packages[s.dir] = append(packages[s.dir], s)
		}
	}
	for dir, files := range packages {
		i := slices.IndexFunc(files, func(s *source) bool {
			name := path.Base(s.file)
			return name == "doc.go" || s.ast.Name.Name == "main" && name == "main.go" || len(files) == 1
		})
		switch {
		case i < 0:
			t.Errorf("%s has no doc.go: say what it is for, and what it must never know", dir)
		case files[i].ast.Doc == nil:
			t.Errorf("%s has no package comment", files[i].file)
		case strings.HasPrefix(dir, "internal/") && !boundary.MatchString(files[i].ast.Doc.Text()):
			t.Errorf("%s does not say what the package must never know or do", files[i].file)
		}
	}
}

// boundary is how a package comment says where the package ends.
var boundary = regexp.MustCompile(`(?i)\bnever\b|\bonly\b`)
