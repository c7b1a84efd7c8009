package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// lines notes each line of a stream.
type lines struct {
	stream string
	all    *[]string
	half   []byte
}

func (l *lines) Write(data []byte) (int, error) {
	l.half = append(l.half, data...)
	for {
		line, rest, found := bytes.Cut(l.half, []byte("\n"))
		if !found {
			return len(data), nil
		}
		*l.all, l.half = append(*l.all, l.stream+string(line)), rest
	}
}

// inOrder runs a cell that shows and prints the numbers up to 100 in all ways, and
// checks that they come like that.
func (x *contextTest) inOrder(language, code string, ways ...string) {
	x.T.Helper()
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.LongTimeout)
	defer cancel()
	var got, want []string
	if _, err := x.Machine.RunCode(ctx, "box", api.RunCodeRequest{Language: language, Code: code}, api.RunIO{
		Stdout: &lines{stream: "out ", all: &got}, Stderr: &lines{stream: "err ", all: &got},
		Result: func(forms map[string]json.RawMessage) error {
			got = append(got, "show "+strings.Trim(string(forms["text/plain"]), `"`))
			return nil
		},
	}); err != nil {
		x.T.Fatal(err)
	}
	for i := range 100 {
		for _, way := range ways {
			want = append(want, fmt.Sprintf("%s %d", way, i))
		}
	}
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			x.T.Fatalf("%s: %q came where %q should: %q", language, got[i:min(i+1, len(got))], w, got[max(0, min(i-4, len(got))):min(i+4, len(got))])
		}
	}
	if len(got) != len(want) {
		x.T.Errorf("%s: and %q", language, got[len(want):])
	}
}

// TestContextOrder has what a cell prints and shows come as it was printed and shown.
func TestContextOrder(t *testing.T) {
	x := newContextTest(t)
	x.inOrder("python", `import sys, subprocess
for i in range(100):
    display({"text/plain": str(i)}, raw=True)
    print(i)
    print(i, file=sys.stderr)
    if i % 10: print(i)
    else: subprocess.run(["echo", str(i)])
    display({"text/plain": str(i), "text/html": "x" * (i * 3000)}, raw=True)
    print(i, file=sys.stderr)`, "show", "out", "err", "out", "show", "err")
	x.inOrder("bash", "for ((i = 0; i < 100; i++)); do echo $i; echo $i >&2; /bin/echo $i; done", "out", "err", "out")
}

func TestContextOrderOfNode(t *testing.T) {
	x := newContextTestOf(t, "/usr/bin/node")
	x.inOrder("node", "for (let i = 0; i < 100; i++) { display({ _repr_mimebundle_() { return { 'text/plain': `${i}`, 'text/html': 'x'.repeat(i * 3000) } } }); console.log(i); console.error(i); console.log(i) }; undefined",
		"show", "out", "err", "out")
}
