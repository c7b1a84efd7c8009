package pkgcache

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
func put(t *testing.T, c *Cache, contents string, ago time.Duration) Digest {
	t.Helper()
	sum := sha256.Sum256([]byte(contents))
	d := Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(contents))}
	in, err := c.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Discard()
	if _, err := in.Write([]byte(contents)); err != nil {
		t.Fatal(err)
	}
	if err := in.Commit(contents, d); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-ago)
	if err := os.Chtimes(c.Path(d), then, then); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCacheIsPruned removes by age, by size and all, with the longest unused first, and
// nothing while a build uses the cache.
func TestCacheIsPruned(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if gone, err := Prune(dir+"/none", 0); err != nil || gone != (Pruned{}) {
		t.Errorf("a cache that is not there: %+v, %v", gone, err)
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	contents := func(i int) string { return string(bytes.Repeat([]byte{byte('a' + i)}, 100)) }
	var all []Digest
	for i := range 6 { // the first was used last
		all = append(all, put(t, c, contents(i), time.Duration(i)*24*time.Hour))
	}
	if ok, err := c.Has(ctx, all[5]); !ok || err != nil { // which is a use
		t.Fatal(ok, err)
	}
	for what, err := range map[string]error{"prune": last(Prune(dir, 0)), "bound": last(Bound(dir, 0))} {
		if api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s while a build uses the cache: %v", what, err)
		}
	}
	c.Close()
	left := func(after string, gone Pruned, err error, removed int, want ...int) {
		t.Helper()
		if err != nil || gone != (Pruned{removed, int64(removed) * 100}) {
			t.Errorf("%s removed %+v, %v; want %d files", after, gone, err, removed)
		}
		var have []int
		for i, d := range all {
			if _, err := os.Stat(c.Path(d)); err == nil {
				have = append(have, i)
			}
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s leaves %v, want %v", after, have, want)
		}
	}
	gone, err := Prune(dir, 84*time.Hour)
	left("an age", gone, err, 1, 0, 1, 2, 3, 5)
	gone, err = Bound(dir, 500)
	left("a bound that holds", gone, err, 0, 0, 1, 2, 3, 5)
	gone, err = Bound(dir, 399)
	left("a bound", gone, err, 2, 0, 1, 5)
	gone, err = Prune(dir, 0)
	left("all", gone, err, 3)
	if c, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func last(_ Pruned, err error) error { return err }
