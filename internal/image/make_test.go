package image

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

func TestMake(t *testing.T) {
	s := openStore(t)
	file := func(d *Draft, path, content string) error {
		return d.PutFile(path, &erofs.Node{Kind: erofs.Regular, Mode: 0o644}, strings.NewReader(content), int64(len(content)))
	}
	fill := func(d *Draft) error {
		return errors.Join(
			d.Put("", &erofs.Node{Kind: erofs.Directory, Mode: 0o700, Xattrs: []erofs.Xattr{{Name: "user.a", Value: []byte("b")}}}),
			file(d, "etc/a", "text"), d.Link("b", "etc/a"), d.Put("srv/null", &erofs.Node{Kind: erofs.CharDevice, Major: 1, Minor: 3}))
	}
	var phases []string
	img, err := s.Make(t.Context(), Options{Name: "made", Source: "a test", Progress: func(p api.Progress) { phases = append(phases, p.Phase) }}, fill)
	if err != nil || len(img.Names) != 1 || img.Source != "a test" || len(phases) == 0 || phases[0] != PhasePack {
		t.Fatalf("%+v, %v, phases %v", img, err, phases)
	}
	got := readStored(t, s, img.ID)
	if got["etc/a"].content != "text" || got["b"].nid != got["etc/a"].nid || got["srv/null"].mode != 0o020000 || got[""].xattrs != `user.a="b" ` {
		t.Errorf("got %+v", got)
	}
	again, err := s.Make(t.Context(), Options{}, fill)
	if err != nil || again.ID != img.ID {
		t.Errorf("the same again is %s, not %s (%v)", again.ID, img.ID, err)
	}
}

// TestMakeFails tells that nothing is left of an image that could not be made.
func TestMakeFails(t *testing.T) {
	own := errors.New("of the caller")
	cancelled, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx  context.Context
		opt  Options
		fill func(d *Draft) error
		code api.Code
		is   error
	}{
		"the caller": {t.Context(), Options{}, func(*Draft) error { return own }, api.CodeInternal, own},
		"too large": {t.Context(), Options{Limits: Limits{FileBytes: 3}}, func(d *Draft) error {
			return d.PutFile("f", &erofs.Node{Kind: erofs.Regular}, strings.NewReader("1234"), 4)
		}, api.CodeLimit, nil},
		"too many": {t.Context(), Options{Limits: Limits{Entries: 1}}, func(d *Draft) error {
			return d.Put("a/b/c", &erofs.Node{Kind: erofs.Fifo})
		}, api.CodeLimit, nil},
		"a bad name": {t.Context(), Options{Name: "No Name"}, func(*Draft) error { return nil }, api.CodeInvalid, nil},
		"nothing":    {t.Context(), Options{}, func(*Draft) error { return nil }, api.CodeInvalid, nil},
		"cancelled": {cancelled, Options{}, func(d *Draft) error {
			cancel()
			return d.Put("a", &erofs.Node{Kind: erofs.Fifo})
		}, api.CodeCanceled, nil},
	} {
		s := openStore(t)
		_, err := s.Make(c.ctx, c.opt, c.fill)
		if got := api.CodeOf(err); got != c.code || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v has code %q, want %q", name, err, got, c.code)
		}
		wantNothingLeft(t, s)
	}
}
