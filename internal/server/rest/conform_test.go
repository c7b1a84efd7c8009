package rest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// conformance makes requests of the document: as it describes them, and with one
// thing wrong. It holds the answers against the document.
type conformance struct {
	t   *testing.T
	api *rest.API
	reg huma.Registry
	rng *rand.Rand
	// hostile says that the next value is to be none that was asked for; it is reset
	// when one was made.
	hostile bool
}

// TestTheHandlersDoWhatTheDocumentSays asks each route with inputs made from the
// document, valid and hostile ones. Answers have a status that the document lists, a
// body of its schema, and are never a defect. RAMET_SEED repeats a run.
func TestTheHandlersDoWhatTheDocumentSays(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("RAMET_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RAMET_SEED=%d", seed)
	var calls []string
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: recorder(&calls), Version: "test"})
	doc := server.Document()
	c := &conformance{t: t, api: server, reg: doc.Components.Schemas, rng: rand.New(rand.NewPCG(seed, 1))}
	asked := 0
	for path, item := range doc.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "PUT": item.Put, "POST": item.Post, "DELETE": item.Delete, "PATCH": item.Patch, "HEAD": item.Head} {
			if op == nil {
				continue
			}
			asked++
			for i := range 60 {
				c.ask(method, path, op, i%2 == 1)
			}
		}
	}
	if asked < 60 || len(calls) < 100 {
		t.Errorf("%d routes were asked, and the service was called %d times", asked, len(calls))
	}
}

// ask makes one request.
func (c *conformance) ask(method, path string, op *huma.Operation, hostile bool) {
	c.t.Helper()
	c.hostile = hostile && c.rng.IntN(3) > 0 // else a header, or the framing of the body
	query := url.Values{}
	header := http.Header{}
	for _, p := range op.Parameters {
		if !p.Required && c.rng.IntN(2) == 0 {
			continue
		}
		text := c.text(p.Schema, p.Name)
		switch p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(text))
		case "query":
			query.Add(p.Name, text)
		case "header":
			header.Set(p.Name, oneLine.ReplaceAllString(text, ""))
		}
	}
	var body string
	if op.RequestBody != nil {
		for mediaType, content := range op.RequestBody.Content {
			header.Set("Content-Type", mediaType)
			if mediaType != "application/json" {
				body = "some bytes"
				continue
			}
			doc, err := json.Marshal(c.value(content.Schema, "", 0))
			if err != nil {
				c.t.Fatal(err)
			}
			body = string(doc)
		}
		if hostile && c.rng.IntN(4) == 0 {
			body = []string{"", "{", "null", "[]", body + body, `{"\u0000":1}`, strings.Repeat(`{"a":`, 5000), "\xff\xfe"}[c.rng.IntN(8)]
		}
	}
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	u, err := url.Parse(target)
	if err != nil {
		return // no client could send it
	}
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	r.URL, r.RequestURI = u, u.RequestURI()
	r.Header = header
	w := &strictRecorder{ResponseRecorder: httptest.NewRecorder()}
	c.api.ServeHTTP(w, r)
	if w.again != 0 {
		c.t.Errorf("%s %s: a second status, %d, after %d", method, target, w.again, w.Code)
	}
	c.judge(fmt.Sprintf("%s %s %.300q %v", method, target, body, header), method, path, op, w.Result())
}

// strictRecorder notes a status that comes after the one of the answer.
type strictRecorder struct {
	*httptest.ResponseRecorder
	begun bool
	again int
}

// WriteHeader implements http.ResponseWriter.
func (w *strictRecorder) WriteHeader(status int) {
	if w.begun {
		w.again = status
	}
	w.begun = w.begun || status >= http.StatusOK
	w.ResponseRecorder.WriteHeader(status)
}

// Write implements io.Writer.
func (w *strictRecorder) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseRecorder.Write(p)
}

var oneLine = regexp.MustCompile(`[\x00-\x1f\x7f]`)

// judge holds an answer against the document.
func (c *conformance) judge(request, method, path string, op *huma.Operation, resp *http.Response) {
	c.t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode >= 500 || resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified {
		c.t.Errorf("%s: status %d %s", request, resp.StatusCode, body)
		return
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= 400 {
		var p httpwire.Problem
		if err := json.Unmarshal(body, &p); method != "HEAD" && (err != nil || p.Code == "" || mediaType != httpwire.ProblemType) {
			c.t.Errorf("%s: status %d is no problem document: %s", request, resp.StatusCode, body)
		}
	}
	described := op.Responses[strconv.Itoa(resp.StatusCode)]
	if described != nil && described.Ref != "" {
		described = c.api.Document().Components.Responses[strings.TrimPrefix(described.Ref, "#/components/responses/")]
	}
	// A value may be one that leads to another route, or to none.
	if described == nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed) {
		return
	}
	if described == nil {
		c.t.Errorf("%s: the document does not know status %d: %s", request, resp.StatusCode, body)
		return
	}
	content := described.Content[mediaType]
	if content == nil || content.Schema == nil || method == "HEAD" || !strings.HasSuffix(mediaType, "json") {
		if content == nil && len(body) > 0 && len(described.Content) > 0 && method != "HEAD" {
			c.t.Errorf("%s: the document does not know a body of type %q with status %d", request, mediaType, resp.StatusCode)
		}
		return
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		c.t.Errorf("%s: %v: %s", request, err, body)
		return
	}
	res := &huma.ValidateResult{}
	huma.Validate(c.reg, content.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, v, res)
	if len(res.Errors) > 0 {
		c.t.Errorf("%s: the body is not what the document says: %v: %s", request, res.Errors, body)
	}
}

// plain are values that fit by what a field is called, as no schema says what a
// reference is.
var plain = map[string]string{
	"id": "base", "ref": "python", "to": "kid", "image": "python", "name": "some-name", "context": "python-1", "sandbox": "base", "tree": "base", "parent": "base", "ancestor": "base",
	"snapshot": "snap", "path": "/tmp/x", "from": "base", "page_token": "", "wait": "1s", "X-Ramet-Wait": "1s", "Last-Event-ID": "1", "tenant": "acme",
	"mode": "0644", "user": "root", "cwd": "/tmp", "metadata": "k=v", "names": "some-name", "Range": "bytes=0-1", "signal": "TERM", "language": "python",
}

// nasty are texts that something may choke on.
var nasty = []string{
	"", " ", "\x00", "..", "../../etc/passwd", "%2e%2e", "a/b", "//", "{}", "\u202e", "😀", "\xff", "-1", "1e999", "NaN", "null", "true", "'; DROP TABLE sandboxes; --",
	"sbx_", "sbx_aaaaaaaaaaaaaaaa", "snap_aaaaaaaaaaaaaaaa", "tok_aaaaaaaaaaaaaaaa", "9223372036854775808", "-9223372036854775809", strings.Repeat("a", 70000),
}

// text returns a value of a parameter.
func (c *conformance) text(s *huma.Schema, name string) string {
	if c.hostile && c.rng.IntN(2) == 0 {
		c.hostile = false
		return nasty[c.rng.IntN(len(nasty))]
	}
	switch v := c.valid(s, name, 0).(type) {
	case string:
		return v
	case []any:
		if len(v) == 0 {
			return plain[name]
		}
		return fmt.Sprint(v[0])
	default:
		return fmt.Sprint(v)
	}
}

// value returns a value of a schema, or, once, one that is wrong.
func (c *conformance) value(s *huma.Schema, name string, depth int) any {
	if c.hostile && c.rng.IntN(4) == 0 {
		c.hostile = false
		wrong := []any{nil, true, -1, 1.5, 1e300, []any{}, map[string]any{}, map[string]any{"a b": nil}, []any{[]any{nil}}, nasty[c.rng.IntN(len(nasty))]}
		return wrong[c.rng.IntN(len(wrong))]
	}
	return c.valid(s, name, depth)
}

func (c *conformance) valid(s *huma.Schema, name string, depth int) any {
	if s.Ref != "" {
		s = c.reg.SchemaFromRef(s.Ref)
	}
	if len(s.Enum) > 0 {
		return s.Enum[c.rng.IntN(len(s.Enum))]
	}
	switch s.Type {
	case huma.TypeBoolean:
		return c.rng.IntN(2) == 0
	case huma.TypeInteger, huma.TypeNumber:
		low, high := 0.0, 100.0
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = *s.Maximum
		}
		return int64(low) + c.rng.Int64N(max(1, min(int64(high-low), 1<<40)+1))
	case huma.TypeArray:
		list := []any{}
		least := 0
		if s.MinItems != nil {
			least = *s.MinItems
		}
		for range least + c.rng.IntN(2) {
			list = append(list, c.value(s.Items, name, depth+1))
		}
		return list
	case huma.TypeObject:
		object := map[string]any{}
		required := map[string]bool{}
		for _, r := range s.Required {
			required[r] = true
		}
		for field, schema := range s.Properties {
			if required[field] || depth < 3 && c.rng.IntN(4) == 0 {
				object[field] = c.value(schema, field, depth+1)
			}
		}
		if c.hostile && c.rng.IntN(6) == 0 {
			c.hostile = false
			object["unknown"] = 1
		}
		return object
	}
	if v, ok := plain[name]; ok {
		return v
	}
	return "text"
}
