package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

func at(path string) api.FileRef { return api.FileRef{Path: path} }

// TestFiles does with files all that can be done, with a name that is no text.
func TestFiles(t *testing.T) {
	files := apitest.NewMemFiles()
	c := connect(t, &apitest.Service{Files: files})
	ctx := t.Context()
	odd := "/srv/odd\n\xff% name"
	mode := uint32(0o600)
	info, err := c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at(odd), Mode: &mode, Parents: true, New: true}, strings.NewReader("contents"))
	if err != nil || info.Path != odd || info.Size != 8 || info.Mode != "0600" || info.Exact != nil {
		t.Fatalf("written: %+v, %v", info, err)
	}
	_, err = c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at(odd), New: true}, strings.NewReader("x"))
	if api.CodeOf(err) != api.CodeChanged {
		t.Errorf("a file that exists: %v", err)
	}
	_, err = c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at(odd), IfMatch: []string{"other", "else"}}, strings.NewReader("x"))
	if api.CodeOf(err) != api.CodeChanged {
		t.Errorf("another version: %v", err)
	}
	_, err = c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at(odd), IfNoneMatch: []string{"other", info.ETag}}, strings.NewReader("x"))
	if api.CodeOf(err) != api.CodeChanged {
		t.Errorf("the version that it was not to have: %v", err)
	}
	if _, err = c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at(odd), IfMatch: []string{info.ETag}, IfNoneMatch: []string{"other"}, Append: true}, strings.NewReader(" more")); err != nil {
		t.Error(err)
	}
	_, err = c.Files.Change(ctx, "base", api.FileChange{FileRef: at(odd), Action: api.FileRemove, IfMatch: []string{info.ETag}})
	if api.CodeOf(err) != api.CodeChanged {
		t.Errorf("removing another version: %v", err)
	}
	r, size, err := c.Files.Read(ctx, "base", at(odd))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	r.Close()
	if string(b) != "contents more" || size != 13 || err != nil {
		t.Errorf("read %q of %d, %v", b, size, err)
	}
	if _, _, err := c.Files.Read(ctx, "base", at("/nothing")); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("nothing: %v", err)
	}
	broken := errors.New("broken")
	if _, err := c.Files.Write(ctx, "base", api.WriteRequest{FileRef: at("/srv/broken")}, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v", err)
	}
	if _, err := c.Files.Stat(ctx, "base", at("/srv/broken")); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("half an upload is there: %v", err)
	}
	var names []string
	list := func(f api.FileInfo) error { names = append(names, f.Path); return nil }
	if err := c.Files.List(ctx, "base", api.ListRequest{FileRef: at("/srv")}, list); err != nil || !slices.Equal(names, []string{"/srv/hello", odd}) {
		t.Errorf("listed %q, %v", names, err)
	}
	res, err := c.Files.Search(ctx, "base", api.SearchRequest{FileRef: at("/"), Text: "more", Limit: 5})
	if err != nil || len(res.Matches) != 1 || res.Matches[0].File.Path != odd {
		t.Errorf("found %+v, %v", res, err)
	}
	for _, ch := range []api.FileChange{
		{FileRef: at("/srv/d"), Action: api.FileMkdir, Mode: &mode},
		{FileRef: at(odd), Action: api.FileMove, To: "/srv/d/\xfe"},
		{FileRef: at("/srv/d/\xfe"), Action: api.FileChmod, Mode: &mode},
		{FileRef: at("/srv/hello"), Action: api.FileRemove},
	} {
		if _, err := c.Files.Change(ctx, "base", ch); err != nil {
			t.Errorf("%s: %v", ch.Action, err)
		}
	}
	archive, err := c.Files.ReadArchive(ctx, "base", at("/srv/d"))
	if err != nil {
		t.Fatal(err)
	}
	b, err = io.ReadAll(archive)
	archive.Close()
	if err != nil {
		t.Fatal(err)
	}
	if res, err := c.Files.WriteArchive(ctx, "base", at("/"), true, bytes.NewReader(b)); err != nil || res.Files != 2 || res.Bytes != 13 {
		t.Errorf("unpacked %+v, %v", res, err)
	}
	if _, err := c.Files.Stat(ctx, "base", at("/d/\xfe")); err != nil {
		t.Error(err)
	}
}

func TestWatchFiles(t *testing.T) {
	files := apitest.NewMemFiles()
	files.Watched = api.FileEvents{Overflow: true, Changes: []api.FileEvent{{Path: "/a\xff", Kind: "created", Dir: true}}}
	c := connect(t, &apitest.Service{Files: files})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []api.FileEvents
	err := c.Files.Watch(ctx, "base", api.WatchRequest{FileRef: at("/srv"), Recursive: true}, func(e api.FileEvents) error {
		if got = append(got, e); len(got) == 2 {
			cancel()
		}
		return nil
	})
	if api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("error = %v", err)
	}
	want := []api.FileEvents{{Ready: true, Changes: []api.FileEvent{}}, files.Watched}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
