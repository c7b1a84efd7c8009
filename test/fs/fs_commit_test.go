package fs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestCommitIsTheSandbox does random operations in a sandbox of an image and looks
// at all files, in it and in sandboxes of what was made of it.
func TestCommitIsTheSandbox(t *testing.T) {
	f := newFuzz(t)
	f.without += ",far" // holes take time and space in what is packed
	b := f.start()
	dir := fmt.Sprintf("/lower/fuzz.%d", f.runs%8)
	if strings.Contains(f.without, "image") {
		dir = "/var/fuzz"
	}
	for generation := range 2 {
		b.work(1200)
		b = b.fork()
		want := b.files()
		packed := fmt.Sprint("commit-", generation)
		f.Commit(b.ref, packed)
		f.ImportBytes(packed+"-oci", f.Export(b.ref, api.ExportRequest{Format: api.ExportOCI}))
		f.ImportBytes(packed+"-tar", f.Export(b.ref, api.ExportRequest{Format: api.ExportTar, Gzip: true}))
		for _, from := range []string{packed + "-tar", packed + "-oci", packed} {
			ref := f.CreateFrom(from, "of-"+from).ID
			f.Long(ref, "fs", "fuzz", "start", "-without", f.without, "-dir", dir)
			b = &fuzzBox{f: f, ref: ref}
			if got := b.files(); got != want {
				t.Fatalf("sandbox of %s:\n%s", from, differing(want, got))
			}
		}
	}
}

// files is what the operator sees of all files that have a name.
func (b *fuzzBox) files() string {
	b.f.T.Helper()
	steps := b.do(fuzzRequest{Ops: []fuzzOp{{"op": "walk"}}, Log: true}).Steps
	var named strings.Builder
	for line := range strings.Lines(steps[len(steps)-1].Result) {
		if !strings.HasPrefix(line, "slot ") {
			named.WriteString(line)
		}
	}
	if named.Len() == 0 {
		b.f.T.Fatal("there are no files")
	}
	return named.String()
}

// differing returns the lines that only one of two texts has.
func differing(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out[:min(len(out), 40)], "\n")
}
