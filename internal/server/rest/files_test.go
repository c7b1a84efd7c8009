package rest_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
)

const filesOfA = "/v1/sandboxes/" + sbxA + "/files"

func TestFileRangesAndConditions(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{Files: apitest.NewMemFiles()}))
	const hello = filesOfA + "?path=/srv/hello"
	for _, q := range []struct {
		name, method string
		headers      []string
		status       int
		body         string
	}{
		{"whole", "GET", nil, 200, "hello\n"},
		{"head", "HEAD", nil, 200, ""},
		{"first bytes", "GET", []string{"Range", "bytes=0-1"}, 206, "he"},
		{"last bytes", "GET", []string{"Range", "bytes=-2"}, 206, "o\n"},
		{"known", "GET", []string{"If-None-Match", `"v-6"`}, 304, ""},
		{"not known", "GET", []string{"If-None-Match", `"v-7"`}, 200, "hello\n"},
		{"part of another version", "GET", []string{"Range", "bytes=0-1", "If-Range", `"v-7"`}, 200, "hello\n"},
	} {
		a := ask(t, c, q.method, hello, "", q.headers...)
		if a.status != q.status || a.body != q.body {
			t.Errorf("%s: %d %q", q.name, a.status, a.body)
		}
		if a.header.Get("ETag") != `"v-6"` || q.status == 200 && (a.header.Get(httpwire.FileModeHeader) != "0640" || a.header.Get("Content-Length") != "6") {
			t.Errorf("%s: %v", q.name, a.header)
		}
	}
	if a := ask(t, c, "GET", hello, "", "Range", "bytes=10-"); a.status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("behind the end: %d %s", a.status, a.body)
	} else {
		a.problem(t)
	}
	if a := ask(t, c, "GET", hello, "", "If-Match", `"v-7"`); a.status != http.StatusPreconditionFailed || !strings.Contains(a.body, `"code":"precondition_failed"`) {
		t.Errorf("another version: %d %s", a.status, a.body)
	} else {
		a.problem(t)
	}
	if a := ask(t, c, "GET", hello, "", "Range", "bytes=0-1,3-4"); a.status != 206 || !strings.HasPrefix(a.header.Get("Content-Type"), "multipart/byteranges") {
		t.Errorf("two ranges: %d %v", a.status, a.header)
	}
}

func TestFileRequestsThatMakeNoSense(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{Files: apitest.NewMemFiles()}))
	for _, q := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"GET", filesOfA, nil, 400},
		{"GET", filesOfA + "?path=relative", nil, 400},
		{"GET", filesOfA + "?path=/srv/hello&nonsense=1", nil, 400},
		{"GET", filesOfA + "?path=/srv", nil, 422},
		{"GET", filesOfA + "?path=/none", nil, 404},
		{"GET", "/v1/sandboxes/..%2f/files?path=/srv/hello", nil, 400},
		{"PUT", filesOfA + "?path=/srv/new&mode=8", nil, 400},
		{"PUT", filesOfA + "?path=/srv/new&mode=77777", nil, 400},
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", "*"}, 412},
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", `"v-5", W/"v-6"`}, 412}, // the comparison is the weak one
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", `"v-6"`}, 412},
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", `v-5`}, 400},
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", ""}, 400},
		{"PUT", filesOfA + "?path=/srv/hello", []string{"If-None-Match", `"v-5"`, "If-Match", `"v-4"`}, 412},
		{"GET", filesOfA + "/list?path=/srv&limit=0", nil, 400},
		{"GET", filesOfA + "/list?path=/srv&limit=10001", nil, 400},
		{"GET", filesOfA + "/list?path=/srv&page_token=%21", nil, 400},
		{"GET", filesOfA + "/search?path=/srv", nil, 400},
		{"GET", filesOfA + "/watch?path=/srv&debounce_ms=-1", nil, 400},
		{"POST", filesOfA + "/chmod?path=/srv", nil, 400},
		{"POST", filesOfA + "/move?path=/srv", nil, 400},
		{"GET", filesOfA + "/archive?path=/none", nil, 404},
		{"PUT", filesOfA + "/archive?path=/none", nil, 404},
	} {
		a := ask(t, c, q.method, q.path, "", q.headers...)
		if a.status != q.status {
			t.Errorf("%s %s: %d %s", q.method, q.path, a.status, a.body)
			continue
		}
		a.problem(t)
	}
}

// What is written or removed on a condition is done to no other version.
func TestFileChangesOnConditions(t *testing.T) {
	files := apitest.NewMemFiles()
	c := testClient(t, apitest.Serve(t, &apitest.Service{Files: files}))
	const hello, none = filesOfA + "?path=/srv/hello", filesOfA + "?path=/srv/none"
	for _, q := range []struct {
		path, name, value string
		status            int
	}{
		{hello, "If-Match", `"v-6"`, 200},
		{hello, "If-Match", ` "other" ,,"v-6"`, 200},
		{hello, "If-Match", "*", 200},
		{hello, "If-Match", `"v-7"`, 412},
		{hello, "If-Match", `""`, 412},
		{hello, "If-Match", `W/"v-6"`, 412}, // the comparison is the strong one
		{hello, "If-Match", `"*"`, 412},
		{hello, "If-Match", "", 400},
		{hello, "If-Match", "v-6", 400},
		{hello, "If-Match", `"v-6`, 400},
		{hello, "If-Match", `"v-6" "v-6"`, 400},
		{hello, "If-Match", `"v-6",*`, 400},
		{hello, "If-Match", ",", 400},
		{hello, "If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT", 400},
		{none, "If-Match", "*", 412},
		{none, "If-Match", `"v-6"`, 412},
	} {
		for _, method := range []string{"PUT", "DELETE"} {
			if method == "DELETE" && q.path == none {
				continue // to the service of this test it is not found
			}
			files.Put("/srv/hello", tar.TypeReg, 0o640, "hello\n")
			a := ask(t, c, method, q.path, "", q.name, q.value)
			want := q.status
			if want == 200 && method == "DELETE" {
				want = 204
			}
			if a.status != want {
				t.Errorf("%s %s: %q: %d %s", method, q.name, q.value, a.status, a.body)
			}
			if kept := ask(t, c, "GET", hello, "").body == "hello\n"; q.status != 200 && !kept {
				t.Errorf("%s %s: %q: it was done", method, q.name, q.value)
			}
		}
	}
	for _, q := range []struct{ path, value string }{{hello, `"v-5", W/"v-7"`}, {hello, `"*"`}, {none, `"v-6"`}, {none, "*"}} {
		files.Put("/srv/hello", tar.TypeReg, 0o640, "hello\n")
		if a := ask(t, c, "PUT", q.path, "", "If-None-Match", q.value); a.status/100 != 2 {
			t.Errorf("If-None-Match: %q: %d %s", q.value, a.status, a.body)
		}
		if a := ask(t, c, "DELETE", none, ""); q.path == none && a.status != 204 {
			t.Errorf("it was not written: %d %s", a.status, a.body)
		}
	}
	// A part is not taken for the whole, nor what was packed for what is in it.
	files.Put("/srv/hello", tar.TypeReg, 0o640, "hello\n")
	for header, status := range map[[2]string]int{{"Content-Range", "bytes 2-5/6"}: 400, {"Content-Encoding", "gzip"}: 415, {"Content-Encoding", "identity"}: 200} {
		if a := ask(t, c, "PUT", hello, "part", header[0], header[1]); a.status != status {
			t.Errorf("%s: %d %s", header, a.status, a.body)
		}
	}
	for _, status := range []int{201, 200} { // there was none, and then there is
		if a := ask(t, c, "PUT", none, "x"); a.status != status {
			t.Errorf("written with status %d, not %d: %s", a.status, status, a.body)
		}
	}
	if a := ask(t, c, "HEAD", hello, "", "Range", "bytes=0-1"); a.status != 200 || a.header.Get("Content-Length") != "4" {
		t.Errorf("HEAD of a range: %d %v", a.status, a.header)
	}
}

// A list of names that are no text keeps their bytes.
func TestFileListCarriesAllBytes(t *testing.T) {
	files := apitest.NewMemFiles()
	files.Put("/srv/\xff\n", tar.TypeReg, 0o644, "")
	c := testClient(t, apitest.Serve(t, &apitest.Service{Files: files}))
	var l struct {
		Items []struct {
			Path        string
			Path_base64 []byte
		}
		Next_page_token string
	}
	a := ask(t, c, "GET", filesOfA+"/list?path=/srv&limit=1", "")
	if err := json.Unmarshal([]byte(a.body), &l); err != nil || len(l.Items) != 1 || l.Items[0].Path != "/srv/hello" || l.Items[0].Path_base64 != nil || l.Next_page_token == "" {
		t.Fatalf("first page %s, %v", a.body, err)
	}
	a = ask(t, c, "GET", filesOfA+"/list?path=/srv&limit=1&page_token="+l.Next_page_token, "")
	l.Next_page_token = ""
	if err := json.Unmarshal([]byte(a.body), &l); err != nil || string(l.Items[0].Path_base64) != "/srv/\xff\n" || l.Items[0].Path != "/srv/\uFFFD\n" || l.Next_page_token != "" {
		t.Errorf("second page %s, %v", a.body, err)
	}
	if a := ask(t, c, "GET", filesOfA+"?path=/srv/%FF%0A", ""); a.status != 200 {
		t.Errorf("read: %d %s", a.status, a.body)
	}
}

// brokenArchive fails after it has begun.
type brokenArchive struct{ service.Files }

func (brokenArchive) ReadArchive(_ context.Context, _ string, _ api.FileRef, to io.Writer) error {
	if _, err := io.WriteString(to, strings.Repeat("x", 1<<20)); err != nil {
		return err
	}
	return api.Errorf(api.CodeSandboxDied, "gone")
}

// An archive that breaks off is not taken for a whole one.
func TestArchiveThatBreaksOff(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{Files: brokenArchive{}}))
	resp, err := c.Get("http://ramet" + filesOfA + "/archive?path=/srv")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes, and no error", n)
	}
}
