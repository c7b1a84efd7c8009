package debian

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// put stores contents in a cache, used so long ago.
func put(t *testing.T, c *cache, contents string, ago time.Duration) digest {
	t.Helper()
	sum := sha256.Sum256([]byte(contents))
	d := digest{sha256: hex.EncodeToString(sum[:]), size: int64(len(contents))}
	in, err := c.create()
	if err != nil {
		t.Fatal(err)
	}
	defer in.discard()
	if _, err := in.Write([]byte(contents)); err != nil {
		t.Fatal(err)
	}
	if err := in.commit(contents, d); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-ago)
	if err := os.Chtimes(c.path(d), then, then); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCacheIsPruned removes by age, by size and all, with the longest unused first, and
// nothing while a build uses the cache.
func TestCacheIsPruned(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if gone, err := PruneCache(dir+"/none", 0); err != nil || gone != (CachePruned{}) {
		t.Errorf("a cache that is not there: %+v, %v", gone, err)
	}
	c, err := openCache(dir)
	if err != nil {
		t.Fatal(err)
	}
	contents := func(i int) string { return string(bytes.Repeat([]byte{byte('a' + i)}, 100)) }
	var all []digest
	for i := range 6 { // the first was used last
		all = append(all, put(t, c, contents(i), time.Duration(i)*24*time.Hour))
	}
	if ok, err := c.has(ctx, all[5]); !ok || err != nil { // which is a use
		t.Fatal(ok, err)
	}
	for what, err := range map[string]error{"prune": last(PruneCache(dir, 0)), "bound": last(BoundCache(dir, 0))} {
		if api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s while a build uses the cache: %v", what, err)
		}
	}
	c.close()
	left := func(after string, gone CachePruned, err error, removed int, want ...int) {
		t.Helper()
		if err != nil || gone != (CachePruned{removed, int64(removed) * 100}) {
			t.Errorf("%s removed %+v, %v; want %d files", after, gone, err, removed)
		}
		var have []int
		for i, d := range all {
			if _, err := os.Stat(c.path(d)); err == nil {
				have = append(have, i)
			}
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s leaves %v, want %v", after, have, want)
		}
	}
	gone, err := PruneCache(dir, 84*time.Hour)
	left("an age", gone, err, 1, 0, 1, 2, 3, 5)
	gone, err = BoundCache(dir, 500)
	left("a bound that holds", gone, err, 0, 0, 1, 2, 3, 5)
	gone, err = BoundCache(dir, 399)
	left("a bound", gone, err, 2, 0, 1, 5)
	gone, err = PruneCache(dir, 0)
	left("all", gone, err, 3)
	if c, err = openCache(dir); err != nil {
		t.Fatal(err)
	}
	c.close()
}

func last(_ CachePruned, err error) error { return err }
