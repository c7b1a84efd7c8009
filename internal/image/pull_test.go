package image

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/choose"
)

// testRegistry is a registry in this process. change may alter its answers.
type testRegistry struct {
	host   string
	change func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func startRegistry(t *testing.T) *testRegistry {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // no credentials of whoever runs the test
	reg := &testRegistry{}
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reg.change != nil {
			reg.change(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	reg.host = strings.TrimPrefix(server.URL, "http://")
	return reg
}

func (r *testRegistry) push(t *testing.T, repo string, img v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(r.host + "/" + repo)
	check(t, err)
	check(t, remote.Write(ref, img))
	return ref.String()
}

func TestPull(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "team/tool:v1", testImage(t, testLayers(t)...))
	s := openStore(t)
	var last api.Progress
	fetched := int64(0)
	img, err := s.Pull(context.Background(), ref, PullOptions{Options: Options{Progress: func(p api.Progress) {
		if p.Phase == PhaseFetch && p.Total > 0 && p.Done == p.Total {
			fetched = p.Done
		}
		last = p
	}}})
	check(t, err)
	wantTestImage(t, s, img)
	if want := "[127.0.0.1/team/tool:v1]"; fmt.Sprint(img.Names) != want || img.Source != ref {
		t.Errorf("names %v, source %q, want %s and %s", img.Names, img.Source, want, ref)
	}
	if fetched == 0 || last.Phase != PhaseSeal {
		t.Errorf("progress: fetched %d, last %+v", fetched, last)
	}
	named, err := s.Pull(context.Background(), ref, PullOptions{Options: Options{Name: "mine"}})
	if err != nil || named.ID != img.ID || len(named.Names) != 2 {
		t.Errorf("second pull: %+v, %v", named, err)
	}
}

func TestPullChoosesPlatform(t *testing.T) {
	reg := startRegistry(t)
	other, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "riscv64"})
	check(t, err)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "riscv64"}}},
		mutate.IndexAddendum{Add: testImage(t, testLayers(t)...), Descriptor: v1.Descriptor{Platform: &choose.Platform}})
	ref, err := name.ParseReference(reg.host + "/multi:latest")
	check(t, err)
	check(t, remote.WriteIndex(ref, index))
	s := openStore(t)
	img, err := s.Pull(context.Background(), ref.String(), PullOptions{})
	check(t, err)
	wantTestImage(t, s, img)
	digest, err := index.Digest()
	check(t, err)
	byDigest, err := s.Pull(context.Background(), reg.host+"/multi@"+digest.String(), PullOptions{})
	if err != nil || byDigest.ID != img.ID {
		t.Errorf("by digest: %v, %v", byDigest.ID, err)
	}
	_, err = s.Pull(context.Background(), reg.push(t, "arm:v1", other), PullOptions{})
	wantCode(t, err, api.CodeUnsupported)
}

// TestPullAgain pulls an image by other references: no layer is fetched again, unless it is not seen, its
// file is damaged or it is to have another configuration.
func TestPullAgain(t *testing.T) {
	reg := startRegistry(t)
	made := testImage(t, testLayers(t)...)
	ref := reg.push(t, "tool:v1", made)
	other := reg.push(t, "other/tool:v2", made)
	digest, err := made.Digest()
	check(t, err)
	byDigest := reg.host + "/tool@" + digest.String()
	// Only the configuration says when it was made: the files are the same.
	anew, err := mutate.CreatedAt(made, v1.Time{Time: time.Unix(1, 0)})
	check(t, err)
	reg.push(t, "tool:v3", anew)
	layers := 0
	reg.change = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			layers++
		}
		next.ServeHTTP(w, r)
	}
	s := openStore(t)
	pull := func(s *Store, what, ref string, opt Options, fetches bool) api.Image {
		t.Helper()
		layers = 0
		img, err := s.Pull(context.Background(), ref, PullOptions{Options: opt})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		wantTestImage(t, s, img)
		if fetches != (layers > 0) {
			t.Errorf("%s: %d blobs are fetched", what, layers)
		}
		return img
	}
	first := pull(s, "the first", ref, Options{}, true)
	pull(s, "the same", ref, Options{}, false)
	pull(s, "by digest", byDigest, Options{}, false)
	if img := pull(s, "in another repository", other, Options{Name: "mine"}, false); img.ID != first.ID || len(img.Names) != 2 || img.Names[1] != "mine" {
		t.Errorf("the second name: %+v", img)
	}
	pull(s, "with other times", reg.host+"/tool:v3", Options{}, true)
	pull(s, "with other times again", reg.host+"/tool:v3", Options{}, false)
	pull(s, "by digest afterwards", byDigest, Options{}, false)
	pull(s.For("others"), "by another owner", ref, Options{}, true)
	pull(s.For("others"), "by another owner again", ref, Options{}, false)
	path, err := s.Path(first.ID)
	check(t, err)
	check(t, os.Truncate(path, 100))
	pull(s, "with a file that is cut off", ref, Options{}, true)
	layers = 0
	own, err := s.Pull(context.Background(), ref, PullOptions{Options: Options{Config: &Config{Cmd: []string{"other"}}}})
	if err != nil || own.ID == first.ID || layers == 0 {
		t.Errorf("with another configuration: %+v, %v, %d blobs", own, err, layers)
	}
	pull(s, "after that", byDigest, Options{}, false)
}

func TestPullErrors(t *testing.T) {
	reg := startRegistry(t)
	img := testImage(t, testLayers(t)...)
	ref := reg.push(t, "tool:v1", img)
	layers, err := img.Layers()
	check(t, err)
	digest, err := layers[0].Digest()
	check(t, err)
	manifest, err := img.Digest()
	check(t, err)
	layer := func(answer func(w http.ResponseWriter, body []byte)) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/blobs/"+digest.String()) {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			answer(w, rec.Body.Bytes())
		}
	}
	for what, c := range map[string]struct {
		ref    string
		change func(http.ResponseWriter, *http.Request, http.Handler)
		code   api.Code
	}{
		"bad reference": {"UPPER/case", nil, api.CodeInvalid},
		"no image":      {reg.host + "/nothing:v1", nil, api.CodeNotFound},
		"no tag":        {reg.host + "/tool:v2", nil, api.CodeNotFound},
		"other layer": {ref, layer(func(w http.ResponseWriter, body []byte) {
			w.Write(compress(t, "gzip", makeTar(t, entry{name: "evil"})))
		}), api.CodeCorrupt},
		"flipped bit": {ref, layer(func(w http.ResponseWriter, body []byte) {
			body[len(body)-5] ^= 1 // in gzip's trailer
			w.Write(body)
		}), api.CodeCorrupt},
		"short layer": {ref, layer(func(w http.ResponseWriter, body []byte) { w.Write(body[:len(body)/2]) }), api.CodeCorrupt},
		"long layer":  {ref, layer(func(w http.ResponseWriter, body []byte) { w.Write(append(body, 0)) }), api.CodeCorrupt},
		"broken connection": {ref, layer(func(w http.ResponseWriter, body []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			w.Write(body[:len(body)/2])
			w.(http.Flusher).Flush() // the client tries again unless the answer has begun
			panic(http.ErrAbortHandler)
		}), api.CodeUnavailable},
		"other manifest": {reg.host + "/tool@" + manifest.String(), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
				io.WriteString(w, `{"schemaVersion":2}`)
				return
			}
			next.ServeHTTP(w, r)
		}, api.CodeCorrupt},
		"denied": {ref, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
		}, api.CodeUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			reg.change = c.change
			s := openStore(t)
			_, err := s.Pull(context.Background(), c.ref, PullOptions{})
			wantCode(t, err, c.code)
			wantNothingLeft(t, s)
		})
	}
}

// TestPullGoesOn breaks each connection of a blob: what is missing is asked for.
func TestPullGoesOn(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "tool:v1", testImage(t, testLayers(t)...))
	var broken, ranges atomic.Int64
	reg.change = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := httptest.NewRecorder()
		whole := r.Clone(r.Context())
		whole.Header.Del("Range")
		next.ServeHTTP(rec, whole)
		body := rec.Body.Bytes()
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") || len(body) < 3 {
			maps.Copy(w.Header(), rec.Header())
			w.WriteHeader(rec.Code)
			w.Write(body)
			return
		}
		status, from := http.StatusOK, 0
		if asked := r.Header.Get("Range"); asked != "" {
			ranges.Add(1)
			if _, err := fmt.Sscanf(asked, "bytes=%d-", &from); err != nil {
				t.Errorf("range %q: %v", asked, err)
			}
			status = http.StatusPartialContent
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)-from))
		w.WriteHeader(status)
		if from > 0 && broken.Load()%2 == 0 {
			w.Write(body[from:])
			return
		}
		broken.Add(1)
		w.Write(body[from : from+(len(body)-from)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	s := openStore(t)
	img, err := s.Pull(context.Background(), ref, PullOptions{})
	check(t, err)
	wantTestImage(t, s, img)
	if broken.Load() == 0 || ranges.Load() == 0 {
		t.Errorf("%d connections broke, %d went on", broken.Load(), ranges.Load())
	}
}

func TestPullNoRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // its port answers no more
	s := openStore(t)
	_, err := s.Pull(context.Background(), strings.TrimPrefix(server.URL, "http://")+"/tool:v1", PullOptions{})
	wantCode(t, err, api.CodeUnavailable)
	wantNothingLeft(t, s)
}

func TestPullUsesCredentials(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "private:v1", testImage(t, testLayers(t)...))
	reg.change = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "pw" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	}
	config := fmt.Sprintf(`{"auths":{%q:{"username":"me","password":"pw"}}}`, reg.host)
	check(t, os.WriteFile(os.Getenv("DOCKER_CONFIG")+"/config.json", []byte(config), 0o600))
	s := openStore(t)
	img, err := s.Pull(context.Background(), ref, PullOptions{})
	check(t, err)
	wantTestImage(t, s, img)
	if _, err := s.Pull(context.Background(), ref, PullOptions{Anonymous: true}); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("without credentials: %v", err)
	}
}

func TestPullStopsWhenCancelled(t *testing.T) {
	reg := startRegistry(t)
	ref := reg.push(t, "tool:v1", testImage(t, testLayers(t)...))
	ctx, cancel := context.WithCancel(context.Background())
	reg.change = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			cancel()
			<-r.Context().Done() // the client hangs up
			return
		}
		next.ServeHTTP(w, r)
	}
	s := openStore(t)
	_, err := s.Pull(ctx, ref, PullOptions{})
	wantCode(t, err, api.CodeCanceled)
	wantNothingLeft(t, s)
}

func TestLocalName(t *testing.T) {
	for in, want := range map[string]string{
		"python": "python", "python:3": "python:3", "me/tool:v1": "me/tool:v1", "host.example/a/b": "host.example/a/b",
		"localhost:5000/a:B": "localhost/a:B", "python@sha256:" + strings.Repeat("a", 64): "",
	} {
		ref, err := name.ParseReference(in)
		check(t, err)
		if got := localName(ref); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

// TestPullsForTenantsRepeatNoAnswer: a reference may name a server of this machine that is no registry.
func TestPullsForTenantsRepeatNoAnswer(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	const hidden = "hidden-bytes"
	for what, answer := range map[string]string{
		"an error": "HTTP/1.1 500 " + hidden + "\r\nContent-Length: 12\r\n\r\n" + hidden, "no HTTP": hidden + "\r\n",
		"a refusal": "HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: 66\r\n\r\n{\"errors\":[{\"code\":\"DENIED\",\"message\":\"" + hidden + " and more bytes\"}]}  ",
		"a page":    "HTTP/1.1 200 OK\r\nContent-Type: " + hidden + "\r\nContent-Length: 12\r\n\r\n" + hidden,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				c.Close()
			}
		}()
		_, err = openStore(t).Pull(context.Background(), l.Addr().String()+"/tool:v1", PullOptions{Anonymous: true})
		l.Close()
		if err == nil || strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
