package snapshot

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/test/harness"
)

// served is a registry that counts what it is sent and what is fetched.
type served struct {
	host           string
	taken, fetched atomic.Int64
	broken         atomic.Bool // answers of blobs are changed
}

func newRegistry(t *testing.T) *served {
	t.Helper()
	r := &served{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.Body = &counted{req.Body, &r.taken}
		handler.ServeHTTP(&answered{ResponseWriter: w, of: r, blob: strings.Contains(req.URL.Path, "/blobs/") && req.Method == http.MethodGet}, req)
	}))
	t.Cleanup(s.Close)
	r.host = strings.TrimPrefix(s.URL, "http://")
	return r
}

// hangUp closes the connections to registries that nobody uses.
func hangUp() { remote.DefaultTransport.(*http.Transport).CloseIdleConnections() }

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type answered struct {
	http.ResponseWriter
	of   *served
	blob bool
}

func (a *answered) Write(p []byte) (int, error) {
	if a.blob {
		a.of.fetched.Add(int64(len(p)))
		if a.of.broken.Load() {
			p = bytes.Clone(p)
			p[len(p)/2] ^= 1
		}
	}
	return a.ResponseWriter.Write(p)
}

func pushed(t *testing.T, n *harness.Node, snap, ref string) *api.PushResult {
	t.Helper()
	res, err := n.Machine.Push(harness.AsOwner, snap, api.PushRequest{Ref: ref}, func(api.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestRegistry pushes a chain of two snapshots and pulls it on another node: what the other
// side has is not sent. A file, a registry and a file have the same digest.
func TestRegistry(t *testing.T) {
	ctx := harness.AsOwner
	r := newRegistry(t)
	from := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	from.Open()
	from.Create("base")
	from.Hold("base", "-value", "one", "-only", held)
	from.Snapshot("base", api.SnapshotRequest{Name: "one"})
	from.Change("base", "one", "two")
	from.Snapshot("base", api.SnapshotRequest{Name: "two"})
	file := packed(t, from, "two", api.PackRequest{})
	one := pushed(t, from, "one", r.host+"/team/warm:one")
	if one.SentBytes != one.SizeBytes || one.SentBytes == 0 || !strings.HasPrefix(one.Digest, "sha256:") {
		t.Errorf("the first push is %+v", one)
	}
	before := r.taken.Load()
	two := pushed(t, from, "two", r.host+"/team/warm:two")
	if sent := r.taken.Load() - before; two.SentBytes >= two.SizeBytes/4 || sent >= two.SizeBytes/4 {
		t.Errorf("the second push is %+v, and the registry was sent %d bytes", two, sent)
	}
	if again := pushed(t, from, "two", r.host+"/team/warm:again"); again.SentBytes != 0 || again.Digest != two.Digest {
		t.Errorf("a third push is %+v", again)
	}
	mine, err := from.Machine.SigningKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if signed, err := from.Machine.Push(ctx, "one", api.PushRequest{Ref: r.host + "/team/signed:one", Sign: true}, func(api.Progress) {}); err != nil || signed.Digest != one.Digest {
		t.Errorf("a signed push is %+v, %v", signed, err)
	}
	_, err = from.Machine.Push(ctx, "two", api.PushRequest{Ref: r.host + "/team/warm@" + two.Digest}, func(api.Progress) {})
	harness.WantCode(t, err, api.CodeInvalid)
	_, err = from.Machine.Push(ctx, "two", api.PushRequest{Ref: "No Reference"}, func(api.Progress) {})
	harness.WantCode(t, err, api.CodeInvalid)
	hangUp()
	from.Finish()

	to := another(t, from.Build)
	t.Cleanup(hangUp)
	pull := func(ref, name string) (*api.Snapshot, error) {
		return to.Machine.Pull(ctx, api.PullRequest{Ref: ref, Name: name}, func(api.Progress) {})
	}
	s, err := pull(r.host+"/team/warm:one", "")
	if err != nil {
		t.Fatal(err)
	}
	r.fetched.Store(0)
	if s2, err := pull(r.host+"/team/warm@"+two.Digest, ""); err != nil || !slices.Equal(s2.DependsOn, []string{s.ID}) || s2.Origin.Digest != two.Digest {
		t.Fatalf("%+v, %v", s2, err)
	}
	if n := r.fetched.Load(); n >= two.SizeBytes/4 {
		t.Errorf("for the second snapshot %d bytes were fetched, of %d", n, two.SizeBytes)
	}
	to.RestoredHolds("one", "one")
	to.RestoredHolds("two", "two")
	if again := packed(t, to, "two", api.PackRequest{}); !bytes.Equal(again, file) {
		t.Error("after a registry, the file is another")
	}

	for ref, code := range map[string]api.Code{"/team/signed:one": "", "/team/warm:one": api.CodeForbidden} {
		_, err := to.Machine.Pull(ctx, api.PullRequest{Ref: r.host + ref, Name: "signed", Trust: []string{mine.Key}}, func(api.Progress) {})
		if code == "" && err != nil {
			t.Error(err)
		} else if code != "" {
			harness.WantCode(t, err, code)
		}
	}
	_, err = pull(r.host+"/team/warm:none", "none")
	harness.WantCode(t, err, api.CodeNotFound)
	tag, err := name.NewTag(r.host + "/team/image:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, empty.Image); err != nil {
		t.Fatal(err)
	}
	_, err = pull(tag.Name(), "")
	if harness.WantCode(t, err, api.CodeUnsupported); err != nil && !strings.Contains(err.Error(), "ramet image pull") {
		t.Error(err)
	}
	to.DestroyAll()
	r.broken.Store(true)
	_, err = pull(r.host+"/team/warm:two", "")
	harness.WantCode(t, err, api.CodeCorrupt)
	if files := harness.FilesBelow(t, to.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
	if !artefact.IsSnapshot([]byte(`{"artifactType":"application/vnd.ramet.snapshot.v9"}`)) {
		t.Error("a later version is no snapshot")
	}
}
