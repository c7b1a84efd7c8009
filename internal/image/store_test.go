package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
)

func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		"python": "python", "python:latest": "python", "python:3.12-Slim": "python:3.12-Slim",
		"host.io/a_b/c-d:v1": "host.io/a_b/c-d:v1", "0": "0", "a..b": "a..b",
		strings.Repeat("n", 128): strings.Repeat("n", 128),
	} {
		if got, err := ParseName("name", in); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "Python", "-a", "/a", "a/", "a//b", "a/../b", "a/./b", "a/..", "a b", "a:", "a::b", "a:b:c", "a:-x", "a\n",
		"img_abcdefgh", "a\x00", "é", strings.Repeat("n", 129),
	} {
		_, err := ParseName("name", in)
		if got := api.CodeOf(err); got != api.CodeInvalid {
			t.Errorf("%q: got %v", in, err)
		}
	}
}

// addImage makes an image whose only file has the given content.
func addImage(t *testing.T, s *Store, content, name string) api.Image {
	t.Helper()
	img, err := importTar(t, s, makeTar(t, entry{name: "f", content: content}), Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestResolve(t *testing.T) {
	s := openStore(t)
	a, b := addImage(t, s, "a", "a"), addImage(t, s, "b", "x/b:1")
	if !api.IsID(api.KindImage, a.ID) {
		t.Fatalf("id %q", a.ID)
	}
	for ref, want := range map[string]string{
		"a": a.ID, "a:latest": a.ID, a.ID: a.ID, a.ID[:8]: a.ID, a.ID[:19]: a.ID, "x/b:1": b.ID, b.ID[:10]: b.ID,
	} {
		if got, err := s.Resolve(ref); err != nil || got.ID != want {
			t.Errorf("%q: got %q, %v, want %q", ref, got.ID, err, want)
		}
	}
	for ref, code := range map[string]api.Code{
		"x/b": api.CodeNotFound, "nothing": api.CodeNotFound, "img_aaaaaaaaaaaaaaaa": api.CodeNotFound,
		"img_aaaaa": api.CodeNotFound, a.ID[:7]: api.CodeInvalid, "../" + a.ID: api.CodeInvalid, "": api.CodeInvalid,
	} {
		_, err := s.Resolve(ref)
		if got := api.CodeOf(err); got != code {
			t.Errorf("%q: got %v, want %s", ref, err, code)
		}
	}
	_, err := s.Path("../../etc/passwd")
	wantCode(t, err, api.CodeInvalid)
}

func TestAmbiguousPrefix(t *testing.T) {
	s := openStore(t)
	img := addImage(t, s, "a", "")
	other := []byte(img.ID)
	other[len(other)-1] = "ab"[bytes.Count(other[len(other)-1:], []byte("a"))]
	record, err := os.ReadFile(pathIn(s, "records", img.ID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pathIn(s, "records", string(other)+".json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Resolve(img.ID[:12])
	wantCode(t, err, api.CodeConflict)
	// A record whose digest does not fit its id is not believed.
	_, err = s.Resolve(string(other))
	wantCode(t, err, api.CodeCorrupt)
}

func TestRemoveNameless(t *testing.T) {
	s := openStore(t)
	free := func(string) error { return nil }
	used := api.Errorf(api.CodeConflict, "used")
	old := addImage(t, s, "a", "one")
	now := addImage(t, s, "b", "one")
	other := addImage(t, s.For("other"), "c", "theirs")
	for _, id := range []string{now.ID, other.ID, api.NewID(api.KindImage)} {
		if gone, err := s.RemoveNameless(id, func(string) error { return used }); gone || err != nil {
			t.Errorf("one with a name, or none: %t, %v", gone, err)
		}
	}
	if gone, err := s.RemoveNameless(old.ID, func(string) error { return used }); gone || api.CodeOf(err) != api.CodeConflict {
		t.Errorf("one that is used: %t, %v", gone, err)
	}
	for _, want := range []bool{true, false} {
		if gone, err := s.RemoveNameless(old.ID, free); gone != want || err != nil {
			t.Errorf("one without a name: %t, %v", gone, err)
		}
	}
	if list, err := s.ForAll().List(); err != nil || len(list) != 1 || list[0].ID != now.ID {
		t.Errorf("there are %v, %v", list, err)
	}
}

func TestTagAndRemove(t *testing.T) {
	s := openStore(t)
	free := func(string) error { return nil }
	used := api.Errorf(api.CodeConflict, "used")
	a, b := addImage(t, s, "a", "one"), addImage(t, s, "b", "two")
	if img, err := s.Tag("one", "three:v"); err != nil || fmt.Sprint(img.Names) != "[one three:v]" {
		t.Fatalf("Tag: %v, %v", img.Names, err)
	}
	if img, err := s.Tag(b.ID, "one"); err != nil || fmt.Sprint(img.Names) != "[one two]" {
		t.Fatalf("Tag does not move a name: %v, %v", img.Names, err)
	}
	_, err := s.Tag("one", "Bad")
	wantCode(t, err, api.CodeInvalid)
	_, err = s.Tag("nothing", "name")
	wantCode(t, err, api.CodeNotFound)

	if gone, err := s.Remove("two", func(string) error { return used }); err != nil || gone {
		t.Fatalf("removing one of two names asks for use: %v, %v", gone, err)
	}
	_, err = s.Remove("one", func(id string) error {
		if id == b.ID {
			return used
		}
		return nil
	})
	wantCode(t, err, api.CodeConflict)
	if img, err := s.Resolve("one"); err != nil || img.ID != b.ID {
		t.Fatalf("a refused removal changed something: %v, %v", img, err)
	}
	if gone, err := s.Remove("one", free); err != nil || !gone {
		t.Fatalf("Remove of the last name: %v, %v", gone, err)
	}
	_, err = s.Remove("one", free)
	wantCode(t, err, api.CodeNotFound)
	if gone, err := s.Remove(a.ID, free); err != nil || !gone {
		t.Fatalf("Remove by id: %v, %v", gone, err)
	}
	wantNothingLeft(t, s)
}

func TestVerifyFindsDamage(t *testing.T) {
	s := openStore(t)
	img := addImage(t, s, strings.Repeat("content", 1000), "a")
	path, err := s.Path(img.ID)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o444 || st.Size() != img.SizeBytes {
		t.Fatalf("blob: %v, %v", st.Mode(), err)
	}
	if err := s.Verify(context.Background(), img.ID); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(good)
	bad[5000]++
	for name, content := range map[string][]byte{"flipped": bad, "short": good[:4096], "empty": nil} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := api.CodeOf(s.Verify(context.Background(), img.ID)); got != api.CodeCorrupt {
			t.Errorf("%s: %q", name, got)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Verify(context.Background(), img.ID), api.CodeCorrupt)
	// Importing it again repairs it.
	addImage(t, s, strings.Repeat("content", 1000), "a")
	if err := s.Verify(context.Background(), img.ID); err != nil {
		t.Error(err)
	}
}

func TestAdd(t *testing.T) {
	from, to := openStore(t), openStore(t)
	config := Config{Cmd: []string{"sh"}}
	img, err := importTar(t, from, smallRoot(t), Options{Config: &config})
	if err != nil {
		t.Fatal(err)
	}
	path, err := from.Path(img.ID)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Clone(blob)
	bad[1030]++
	for name, c := range map[string]struct {
		blob []byte
		opt  AddOptions
		code api.Code
	}{
		"other digest": {blob, AddOptions{Meta: Meta{Config: config}, Digest: "sha256:00"}, api.CodeCorrupt},
		"other config": {blob, AddOptions{Digest: img.Digest}, api.CodeCorrupt},
		"superblock":   {bad, AddOptions{Meta: Meta{Config: config}}, api.CodeCorrupt},
		"truncated":    {blob[:len(blob)-4096], AddOptions{Meta: Meta{Config: config}}, api.CodeCorrupt},
		"no image":     {[]byte("text"), AddOptions{}, api.CodeCorrupt},
		"too large":    {blob, AddOptions{Meta: Meta{Config: config}, MaxBytes: 4096}, api.CodeHostile},
		"name":         {blob, AddOptions{Meta: Meta{Config: config, Name: "Bad"}}, api.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := to.Add(context.Background(), bytes.NewReader(c.blob), c.opt)
			wantCode(t, err, c.code)
			wantNothingLeft(t, to)
		})
	}
	got, err := to.Add(context.Background(), bytes.NewReader(blob), AddOptions{Meta: Meta{Name: "moved", Config: config}, Digest: img.Digest})
	if err != nil || got.ID != img.ID || got.Names[0] != "moved" || got.Cmd[0] != "sh" {
		t.Fatalf("Add: %+v, %v", got, err)
	}
	wantFiles(t, readStored(t, to, got.ID), smallRootFiles())
}

// TestOpenCollectsLeftovers plays a crash at each step of an import and a
// removal, beside an import that is still under way.
func TestOpenCollectsLeftovers(t *testing.T) {
	s := openStore(t)
	kept := addImage(t, s, "kept", "kept")
	running, err := s.files.NewTemp()
	if err != nil {
		t.Fatal(err)
	}
	defer s.files.Discard(running)
	for _, name := range []string{
		"blobs/.tmp-crashed", "records/.tmp-1", ".tmp-2",
		"blobs/" + strings.Repeat("ab", 32) + ".erofs", // published, no record yet
	} {
		if err := os.WriteFile(pathIn(s, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	foreign := pathIn(s, "blobs", "README")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.files.Dir()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, dir := range []string{"", "blobs", "records"} {
		entries, err := os.ReadDir(pathIn(s, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	want := []string{
		"blobs", "lock", "names.json", "records", "blobs/README", "blobs/" + filepath.Base(running.Name()),
		"blobs/" + strings.TrimPrefix(kept.Digest, "sha256:") + ".erofs", "records/" + kept.ID + ".json",
	}
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if err := s.Verify(context.Background(), kept.ID); err != nil {
		t.Error(err)
	}
}

func TestDocumentsOfOtherVersionsAreNotRead(t *testing.T) {
	s := openStore(t)
	img := addImage(t, s, "a", "a")
	if err := os.WriteFile(pathIn(s, "records", img.ID+".json"), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Resolve("a")
	wantCode(t, err, api.CodeUnsupported)
	if err := os.WriteFile(pathIn(s, "names.json"), []byte(`{"version":`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.List()
	wantCode(t, err, api.CodeCorrupt)
}

// TestConcurrentChanges uses two stores on one directory, as two processes do:
// every change must be there in the end.
func TestConcurrentChanges(t *testing.T) {
	one := openStore(t)
	two, err := Open(one.files.Dir())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		s := []*Store{one, two}[i%2]
		wg.Go(func() {
			name := fmt.Sprintf("name%d", i)
			data := makeTar(t, entry{name: "f", content: fmt.Sprint(i / 4)}) // four of each
			if _, err := s.ImportTar(context.Background(), bytes.NewReader(data), Options{Name: name}); err != nil {
				t.Errorf("ImportTar: %v", err)
				return
			}
			if _, err := s.Tag(name, name+":tag"); err != nil {
				t.Errorf("Tag: %v", err)
			}
			if _, err := s.Remove(name, func(string) error { return nil }); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if _, err := Open(s.files.Dir()); err != nil {
				t.Errorf("Open: %v", err)
			}
		})
	}
	wg.Wait()
	list, err := one.List()
	if err != nil || len(list) != 4 {
		t.Fatalf("got %d images, %v", len(list), err)
	}
	for _, img := range list {
		if len(img.Names) != 4 {
			t.Errorf("%s has the names %v", img.ID, img.Names)
		}
		readStored(t, one, img.ID)
	}
}
