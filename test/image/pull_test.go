package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// registryOnLoopback serves the image of the tests as team/box:v1.
type registryOnLoopback struct {
	ref, digest string
	pulls       atomic.Int64 // requests for layers
	hold        atomic.Pointer[chan struct{}]
	asked       chan struct{} // receives for each request that is held
}

func startRegistry(t *testing.T) *registryOnLoopback {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // no credentials of whoever runs the test
	r := &registryOnLoopback{asked: make(chan struct{}, 100)}
	next := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/manifests/") {
			r.pulls.Add(1)
			if hold := r.hold.Load(); hold != nil {
				r.asked <- struct{}{}
				select {
				case <-*hold:
				case <-req.Context().Done():
				}
			}
		}
		next.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	layer, err := tarball.LayerFromFile(filepath.Join(harness.Assets, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	marker, err := tarball.LayerFromOpener(markerLayer) // the contents are not those of "box"
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer, marker)
	}
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/team/box:v1")
	if err == nil {
		err = remote.Write(tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	r.ref, r.digest = tag.String(), tag.Repository.Name()+"@"+digest.String()
	r.pulls.Store(0)
	return r
}

func markerLayer() (io.ReadCloser, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "srv/pulled", Mode: 0o644}); err != nil {
		return nil, err
	}
	return io.NopCloser(&b), w.Close()
}

// TestCreatePullsAMissingImage creates sandboxes of references in a registry, ten at the same
// time.
func TestCreatePullsAMissingImage(t *testing.T) {
	reg := startRegistry(t)
	n := harness.NewNode(t)
	ctx := harness.AsOwner
	_, err := n.Machine.Create(ctx, api.CreateRequest{Image: reg.ref, Pull: api.PullNever})
	harness.WantCode(t, err, api.CodeNotFound)
	if got := reg.pulls.Load(); got != 0 {
		t.Errorf("%d requests although nothing was to be pulled", got)
	}
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		wg.Go(func() {
			sb, err := n.Machine.Create(ctx, api.CreateRequest{Image: reg.ref})
			if err != nil {
				t.Errorf("create %d: %v", i, err)
				return
			}
			ids[i] = sb.ID
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, id := range ids {
		if got := n.Get(id).Image; got != n.Get(ids[0]).Image {
			t.Errorf("sandbox %s is of image %s", id, got)
		}
	}
	n.Guest(ids[0], "true")
	once := reg.pulls.Load()
	if once == 0 || once > 2 {
		t.Errorf("ten creates fetched the manifest %d times", once)
	}
	use := func(req api.CreateRequest, fetches bool) {
		t.Helper()
		before := reg.pulls.Load()
		sb, err := n.Machine.Create(ctx, req)
		if err != nil {
			t.Errorf("%+v: %v", req, err)
			return
		}
		if got := reg.pulls.Load() > before; got != fetches {
			t.Errorf("%+v: fetched is %t", req, got)
		}
		n.Destroy(sb.ID)
	}
	use(api.CreateRequest{Image: reg.ref}, false)
	use(api.CreateRequest{Image: reg.ref, Pull: api.PullNever}, false)
	use(api.CreateRequest{Image: "127.0.0.1/team/box:v1"}, false) // the name that it was given
	use(api.CreateRequest{Image: reg.ref, Pull: api.PullAlways}, true)
	n.Destroy(ids...)
}

// TestADigestIsPulledOnce creates sandboxes of a digest, whose image gets no name.
func TestADigestIsPulledOnce(t *testing.T) {
	reg := startRegistry(t)
	n := harness.NewNode(t)
	for i := range 2 {
		sb, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: reg.digest})
		if err != nil {
			t.Fatal(err)
		}
		n.Destroy(sb.ID)
		if got := reg.pulls.Load(); got != 1 {
			t.Errorf("after create %d the manifest was fetched %d times", i+1, got)
		}
	}
}

// TestAnotherPullsWhenTheFirstIsCancelled cancels the request that pulls the image that another
// one waits for.
func TestAnotherPullsWhenTheFirstIsCancelled(t *testing.T) {
	reg := startRegistry(t)
	n := harness.NewNode(t)
	hold := make(chan struct{})
	reg.hold.Store(&hold)
	ctx, cancel := context.WithCancel(harness.AsOwner)
	first := harness.InBackground(func() error {
		_, err := n.Machine.Create(ctx, api.CreateRequest{Image: reg.ref})
		return err
	})
	<-reg.asked
	progress := make(chan struct{}, 1000)
	second := harness.InBackground(func() error {
		req := api.CreateRequest{Image: reg.ref}
		_, err := n.Machine.CreateImage(harness.AsOwner, req.ImageRequest(), func(api.Progress) { progress <- struct{}{} })
		return err
	})
	<-progress // that of the first
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) && api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("the first: %v", err)
	}
	<-reg.asked // by the second
	close(hold)
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
	if _, err := n.Machine.GetImage(harness.AsOwner, reg.ref); err != nil {
		t.Error(err)
	}
}

// TestWhatCannotBePulled says what to do.
func TestWhatCannotBePulled(t *testing.T) {
	reg := startRegistry(t)
	n := harness.NewNode(t)
	for name, c := range map[string]struct {
		req  api.CreateRequest
		code api.Code
		says string
	}{
		"plain name":      {api.CreateRequest{Image: "none"}, api.CodeNotFound, "none"},
		"not in registry": {api.CreateRequest{Image: strings.Replace(reg.ref, "v1", "v2", 1)}, api.CodeNotFound, "ramet image import"},
		"no registry":     {api.CreateRequest{Image: "127.0.0.1:1/team/box:v1"}, api.CodeUnavailable, "ramet image import"},
		"policy":          {api.CreateRequest{Image: "box", Pull: "often"}, api.CodeInvalid, "missing, always or never"},
	} {
		_, err := n.Machine.Create(harness.AsOwner, c.req)
		if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	_, err := n.Machine.Create(harness.AsTenant("a"), api.CreateRequest{Image: "127.0.0.1:1/team/box:v1"})
	harness.WantCode(t, err, api.CodeUnavailable)
}
