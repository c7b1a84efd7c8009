package image

import (
	"context"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

// makeFor makes an image with one file of the given contents.
func makeFor(t *testing.T, s *Store, name, link string) api.Image {
	t.Helper()
	img, err := s.Make(context.Background(), Options{Name: name}, func(d *Draft) error {
		return d.Put("link", &erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: link})
	})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func namesIn(t *testing.T, s *Store) (all []string) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range list {
		all = append(all, img.Names...)
	}
	slices.Sort(all)
	return all
}

// TestOwnersSeeTheirOwn has two owners give the same name to different images, and
// different names to the same one.
func TestOwnersSeeTheirOwn(t *testing.T) {
	raw, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, b, host := raw.For("a"), raw.For("b"), raw.For("")
	ofA, ofB := makeFor(t, a, "x", "1"), makeFor(t, b, "x", "2")
	both := makeFor(t, b, "also", "1")
	if ofA.ID == ofB.ID || both.ID != ofA.ID {
		t.Fatalf("images %s, %s, %s", ofA.ID, ofB.ID, both.ID)
	}
	for name, c := range map[string]struct {
		s    *Store
		want []string
	}{"a": {a, []string{"x"}}, "b": {b, []string{"also", "x"}}, "host": {host, nil}} {
		if got := namesIn(t, c.s); !slices.Equal(got, c.want) {
			t.Errorf("%s sees %q, want %q", name, got, c.want)
		}
	}
	for _, ref := range []string{ofB.ID, ofB.ID[:12], "@b/x", "b/x", "also"} {
		if img, err := a.Resolve(ref); err == nil {
			t.Errorf("a finds %s: %+v", ref, img)
		}
	}
	if removed, err := b.Remove(both.ID, func(string) error { return nil }); err != nil || removed {
		t.Errorf("b removes what a has: %t, %v", removed, err)
	}
	if _, err := b.Resolve(both.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("b sees what it removed: %v", err)
	}
	if img, err := a.Resolve("x"); err != nil || img.ID != ofA.ID {
		t.Errorf("a has %v, %v", img, err)
	}
	makeFor(t, b, "x", "3") // the name moves
	if _, err := b.Resolve(ofB.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("b sees what has no name of it: %v", err)
	}
	if _, err := host.Resolve(ofB.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("the default owner sees what has no name: %v", err)
	}
	if _, err := raw.ForAll().Resolve(ofB.ID); err != nil {
		t.Errorf("nobody sees what has no name: %v", err)
	}
	if _, err := raw.ForAll().Resolve(ofA.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("everybody sees what a has: %v", err)
	}
}

// TestNamesAreNotTakenUnasked makes and gives images under a name that another image has.
func TestNamesAreNotTakenUnasked(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := s.For("a")
	first, other, theirs := makeFor(t, s, "x", "1"), makeFor(t, s, "other", "2"), makeFor(t, a, "x", "3")
	keep := func(link string) error {
		_, err := s.Make(context.Background(), Options{Name: "x", KeepName: true}, func(d *Draft) error {
			return d.Put("link", &erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: link})
		})
		return err
	}
	if err := keep("4"); api.CodeOf(err) != api.CodeNameTaken {
		t.Errorf("another image takes the name: %v", err)
	}
	if err := keep("1"); err != nil {
		t.Errorf("the image that has the name is made again: %v", err)
	}
	if _, err := s.Give(other.ID, "a", "x", false); api.CodeOf(err) != api.CodeNameTaken {
		t.Errorf("a name is given that another image has there: %v", err)
	}
	for of, want := range map[*Store]string{s: first.ID, a: theirs.ID} {
		if img, err := of.Resolve("x"); err != nil || img.ID != want {
			t.Errorf("x is %+v, %v; want %s", img, err, want)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 3 {
		t.Errorf("%d images are left, %v", len(list), err)
	}
	if img, err := s.Give(other.ID, "a", "x", true); err != nil || img.ID != other.ID {
		t.Errorf("the name is replaced: %+v, %v", img, err)
	}
}
