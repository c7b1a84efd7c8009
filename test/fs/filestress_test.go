package fs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestForksWhileFilesAndPortsAreUsed forks a sandbox and its children while its
// files and ports are used from outside in all ways at once.
func TestForksWhileFilesAndPortsAreUsed(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.StartServer(ref, "tcp", "127.0.0.1:80")
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/tree/a/f"), Parents: true}, strings.Repeat("line\n", 50_000))
	ctx, stop := context.WithCancel(harness.AsOwner)
	var wg sync.WaitGroup
	forever := func(what string, do func(i int) error) {
		wg.Go(func() {
			i := 0
			for ; ctx.Err() == nil; i++ {
				if err := do(i); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
			if i == 0 {
				t.Errorf("%s never happened", what)
			}
		})
	}
	background := harness.AsOwner
	forever("write", func(i int) error {
		f := api.WriteRequest{FileRef: harness.At(fmt.Sprintf("/srv/w%d", i%5)), Atomic: i%2 == 0}
		_, err := n.Machine.WriteFile(background, ref, f, strings.NewReader(strings.Repeat("x", i%300_000)))
		return err
	})
	forever("read", func(int) error {
		got, err := n.Read(ref, harness.At("/srv/tree/a/f"))
		if err == nil && len(got) != 250_000 {
			err = fmt.Errorf("%d bytes", len(got))
		}
		return err
	})
	forever("list", func(int) error {
		_, err := n.Machine.ListFiles(background, ref, api.ListRequest{FileRef: harness.At("/srv"), Limit: 100})
		return err
	})
	forever("archive", func(int) error {
		var b bytes.Buffer
		if err := n.Machine.ReadArchive(background, ref, harness.At("/srv/tree"), &b); err != nil {
			return err
		}
		_, err := n.Machine.WriteArchive(background, ref, harness.At("/srv/copy"), true, &b)
		return err
	})
	forever("search", func(int) error {
		_, err := n.Machine.SearchFiles(background, ref, api.SearchRequest{FileRef: harness.At("/srv/tree"), Text: "line", Limit: 10})
		return err
	})
	forever("dial", func(i int) error {
		c, err := n.Machine.DialPort(background, ref, 80, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "echo\n"); err != nil {
			return err
		}
		return harness.RoundTrip(c, strings.Repeat("y", 1+i%100_000))
	})
	watch := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv"), Recursive: true})
	for range 5 {
		kids := n.Fork(ref, 2)
		grandkid := n.Fork(kids[0].ID, 1)[0]
		for _, k := range append(kids, grandkid) {
			for _, f := range list(n, k.ID, api.ListRequest{FileRef: harness.At("/srv"), Glob: ".ramet-*", Limit: 10}) {
				t.Errorf("%s has %s", k.ID, f)
			}
			n.MustRead(k.ID, "/srv/tree/a/f", strings.Repeat("line\n", 50_000))
			if err := harness.RoundTrip(n.DialPort(k.ID, 80, "echo"), "hello"); err != nil {
				t.Errorf("%s: %v", k.ID, err)
			}
			n.Destroy(k.ID)
		}
	}
	stop()
	wg.Wait()
	watch.wait("created /srv/w1")
	watch.end()
}
