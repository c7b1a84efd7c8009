package image

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// mayFail are operations whose failure leaves only what the next Open collects: the removal
// of a temporary file.
func mayFail(e faultfs.Event) bool { return e.Op == faultfs.Remove }

// mustHave checks that the store is sound: of the image kept all is as it was, each image that
// is listed is whole, and another process that opens the store finds nothing left over.
func mustHave(t *testing.T, s *Store, kept api.Image) {
	t.Helper()
	again, err := Open(s.files.Dir())
	if err != nil {
		t.Fatal(err)
	}
	list, err := again.List()
	if err != nil {
		t.Fatal(err)
	}
	blobs, records := 0, 0
	for _, img := range list {
		if err := again.Verify(context.Background(), img.ID); err != nil {
			t.Error(err)
		}
		blobs++
		records++
	}
	for dir, want := range map[string]int{"blobs": blobs, "records": records} {
		if left, err := filepath.Glob(pathIn(again, dir, "*")); err != nil || len(left) != want {
			t.Errorf("%s has %v for %d images, %v", dir, left, want, err)
		}
		if left, err := filepath.Glob(pathIn(again, dir, ".tmp-*")); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	if kept.ID == "" {
		return
	}
	if got, err := again.Resolve(kept.ID); err != nil || got.Digest != kept.Digest || !slices.Contains(got.Names, "kept") {
		t.Errorf("the image that was there is %+v, %v", got, err)
	}
}

// TestFaultsOfImport lets each operation of an import fail: the images that were there stay,
// the new one is whole or not there, and a later try succeeds.
func TestFaultsOfImport(t *testing.T) {
	root := smallRoot(t)
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		s, err := open(filepath.Join(t.TempDir(), "images"), c.FS)
		if err != nil {
			t.Fatal(err)
		}
		kept := addImage(t, s, "kept", "kept")
		add := func() error {
			_, err := s.ImportTar(context.Background(), bytes.NewReader(root), Options{Name: "new"})
			return err
		}
		err = c.Do(t, add, mayFail)
		if c.Failed != nil && c.Failed.Op == faultfs.Write && api.CodeOf(err) == api.CodeCorrupt {
			t.Errorf("the archive is blamed: %v", err)
		}
		mustHave(t, s, kept)
		img, missing := s.Resolve("new")
		if err == nil && missing != nil {
			t.Errorf("the new image is not there: %v", missing)
		}
		if missing == nil {
			wantFiles(t, readStored(t, s, img.ID), smallRootFiles())
		}
		if err := add(); err != nil {
			t.Errorf("a later try: %v", err)
		}
		if img, err := s.Resolve("new"); err != nil {
			t.Error(err)
		} else if err := s.Verify(context.Background(), img.ID); err != nil {
			t.Error(err)
		}
		mustHave(t, s, kept)
	})
}

// TestFaultsOfRemove lets each operation of a removal fail: the other image stays, the one to
// be removed is whole or gone, and a later try removes what is left.
func TestFaultsOfRemove(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		s, err := open(filepath.Join(t.TempDir(), "images"), c.FS)
		if err != nil {
			t.Fatal(err)
		}
		kept, gone := addImage(t, s, "kept", "kept"), addImage(t, s, "gone", "gone")
		remove := func() error {
			_, err := s.Remove(gone.ID, func(string) error { return nil })
			return err
		}
		err = c.Do(t, remove, mayFail)
		mustHave(t, s, kept)
		if _, there := s.Resolve(gone.ID); there == nil && err == nil {
			t.Error("the image is there")
		} else if there == nil || api.CodeOf(there) != api.CodeNotFound {
			if err := remove(); err != nil {
				t.Errorf("a later try: %v", err)
			}
		}
		if list, err := s.List(); err != nil || len(list) != 1 || list[0].ID != kept.ID {
			t.Errorf("there are %v, %v", list, err)
		}
		mustHave(t, s, kept)
	})
}

// TestFaultsOfTag lets each operation of naming an image fail: its old name stays.
func TestFaultsOfTag(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		s, err := open(filepath.Join(t.TempDir(), "images"), c.FS)
		if err != nil {
			t.Fatal(err)
		}
		kept := addImage(t, s, "kept", "kept")
		tag := func() error { _, err := s.Tag("kept", "other"); return err }
		err = c.Do(t, tag, mayFail)
		mustHave(t, s, kept)
		if img, missing := s.Resolve("other"); err == nil && missing != nil || missing == nil && img.ID != kept.ID {
			t.Errorf("the name is of %s, %v", img.ID, missing)
		}
		if err := tag(); err != nil {
			t.Errorf("a later try: %v", err)
		}
		mustHave(t, s, kept)
	})
}
