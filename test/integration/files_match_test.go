package integration

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// TestFilesMatchOnce has several write the same version of a file at the same time: it
// is that version for one of them only.
func TestFilesMatchOnce(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	for round := range 40 {
		w := sandbox.WriteRequest{FileRef: at("/tmp/file"), Atomic: round%2 == 0}
		w.IfMatch = []string{n.put(ref, sandbox.WriteRequest{FileRef: w.FileRef}, "first").ETag}
		var calls []<-chan error
		for i := range 6 {
			calls = append(calls, inBackground(func() error {
				_, err := n.m.WriteFile(asOwnerIn(t), ref, w, strings.NewReader(fmt.Sprint(i)))
				return err
			}))
		}
		done := 0
		for _, c := range calls {
			if err := <-c; err == nil {
				done++
			} else {
				wantCode(t, err, sandbox.CodeChanged)
			}
		}
		if done != 1 {
			t.Errorf("%d wrote the first version, atomically: %t", done, w.Atomic)
		}
	}
}
