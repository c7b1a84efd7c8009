package snapdir

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// TestFaultsOfReceive lets each operation of receiving a snapshot fail: it is whole or not
// there, and a later try succeeds.
func TestFaultsOfReceive(t *testing.T) {
	ctx := context.Background()
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		parent, from := t.TempDir(), frozen(t)
		id := api.NewID(api.KindSnapshot)
		dir := filepath.Join(parent, id)
		var w *Written
		try := func() error {
			in, err := receive(c.FS, dir)
			if err != nil {
				return err
			}
			defer in.Close()
			names, sizes := []string{}, []int64{}
			for i, f := range from.Files {
				name, size := PartFile(i == 0, i), int64(3*snapfile.PageSize)
				p, err := in.Part(name, size, func(write func(int64, []byte) error) error {
					return eachPage(ctx, f, 0, size, make([]byte, chunk), write)
				})
				if err != nil {
					return err
				}
				if want, err := pagesDigest(ctx, f); err != nil || p.Digest != want {
					t.Errorf("the digest is %s, %v", p.Digest, err)
				}
				names, sizes = append(names, id+"/"+name), append(sizes, size)
			}
			state, err := OpenState(from.State)
			if err != nil {
				return err
			}
			defer state.Close()
			if err := in.State(state, names, sizes); err != nil {
				return err
			}
			w, err = in.Put(nil)
			return err
		}
		err := c.Do(t, try, nil)
		if err != nil {
			if left := namesIn(t, parent); len(left) != 0 {
				t.Errorf("after %v there are %v", err, left)
			}
			if err := try(); err != nil {
				t.Fatalf("a later try: %v", err)
			}
		}
		mustBeWhole(t, dir, id, w)
		if left := namesIn(t, parent); !slices.Equal(left, []string{id}) {
			t.Errorf("there are %v", left)
		}
	})
}

// TestReceiveRefusesStates has states that refer to more than there is.
func TestReceiveRefusesStates(t *testing.T) {
	from := frozen(t)
	for name, sizes := range map[string][]int64{"short memory": {2 * snapfile.PageSize, 3 * snapfile.PageSize}, "short files": {3 * snapfile.PageSize, 0}, "too few": {3 * snapfile.PageSize}} {
		in, err := Receive(filepath.Join(t.TempDir(), api.NewID(api.KindSnapshot)))
		if err != nil {
			t.Fatal(err)
		}
		state, err := OpenState(from.State)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.State(state, make([]string, len(sizes)), sizes); api.CodeOf(err) != api.CodeCorrupt {
			t.Errorf("%s: %v", name, err)
		}
		state.Close()
		in.Close()
		if _, err := os.Stat(in.temp); !os.IsNotExist(err) {
			t.Error(err)
		}
	}
}
