package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
)

// TestForksWhileFilesAndPortsAreUsed forks a sandbox and its children while its
// files and ports are used from outside in all ways at once.
func TestForksWhileFilesAndPortsAreUsed(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	n.startServer(ref, "tcp", "127.0.0.1:80")
	n.put(ref, api.WriteRequest{FileRef: at("/srv/tree/a/f"), Parents: true}, strings.Repeat("line\n", 50_000))
	ctx, stop := context.WithCancel(asOwner)
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
	background := asOwner
	forever("write", func(i int) error {
		f := api.WriteRequest{FileRef: at(fmt.Sprintf("/srv/w%d", i%5)), Atomic: i%2 == 0}
		_, err := n.m.WriteFile(background, ref, f, strings.NewReader(strings.Repeat("x", i%300_000)))
		return err
	})
	forever("read", func(int) error {
		got, err := n.read(ref, at("/srv/tree/a/f"))
		if err == nil && len(got) != 250_000 {
			err = fmt.Errorf("%d bytes", len(got))
		}
		return err
	})
	forever("list", func(int) error {
		_, err := n.m.ListFiles(background, ref, api.ListRequest{FileRef: at("/srv"), Limit: 100})
		return err
	})
	forever("archive", func(int) error {
		var b bytes.Buffer
		if err := n.m.ReadArchive(background, ref, at("/srv/tree"), &b); err != nil {
			return err
		}
		_, err := n.m.WriteArchive(background, ref, at("/srv/copy"), true, &b)
		return err
	})
	forever("search", func(int) error {
		_, err := n.m.SearchFiles(background, ref, api.SearchRequest{FileRef: at("/srv/tree"), Text: "line", Limit: 10})
		return err
	})
	forever("dial", func(i int) error {
		c, err := n.m.DialPort(background, ref, 80, 0)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "echo\n"); err != nil {
			return err
		}
		return roundTrip(c, strings.Repeat("y", 1+i%100_000))
	})
	watch := n.watch(ref, api.WatchRequest{FileRef: at("/srv"), Recursive: true})
	for range 5 {
		kids := n.fork(ref, 2)
		grandkid := n.fork(kids[0].ID, 1)[0]
		for _, k := range append(kids, grandkid) {
			for _, f := range n.list(k.ID, api.ListRequest{FileRef: at("/srv"), Glob: ".ramet-*", Limit: 10}) {
				t.Errorf("%s has %s", k.ID, f)
			}
			n.mustRead(k.ID, "/srv/tree/a/f", strings.Repeat("line\n", 50_000))
			if err := roundTrip(n.dialPort(k.ID, 80, "echo"), "hello"); err != nil {
				t.Errorf("%s: %v", k.ID, err)
			}
			n.destroy(k.ID)
		}
	}
	stop()
	wg.Wait()
	watch.wait("created /srv/w1")
	watch.end()
}
