package proxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/secrets"
)

// bearer is a treatment that puts the secret into Authorization.
func bearer(edit func(*api.NetworkTreatment)) api.NetworkTreatment {
	t := api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "Authorization", Value: "Bearer ${KEY}"}}
	if edit != nil {
		edit(&t)
	}
	return t
}

func TestSecretIsPutIn(t *testing.T) {
	s := newSecretOf("Authorization")
	s.Binding.Methods, s.Binding.Paths = []string{"POST"}, []string{"/v1/*"}
	seen := make(chan http.Header, 1)
	protocols(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header }, func(t *testing.T, w *world, c *http.Client) {
		git := func(password string) string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte("git:"+password))
		}
		for _, x := range []struct {
			what, method, path string
			header, value      string
			want               string // of Authorization
		}{
			{"nothing of the guest's", "POST", "/v1/x", "X", "", "Bearer " + value},
			{"its placeholder", "POST", "/v1/x", "Authorization", "Bearer " + s.Placeholder, "Bearer " + value},
			{"its placeholder in another scheme", "POST", "/v1/x", "Authorization", "token " + s.Placeholder, "token " + value},
			{"its placeholder in base64", "POST", "/v1/x", "Authorization", git(s.Placeholder), git(value)},
			{"something of the guest's own", "POST", "/v1/x", "Authorization", "Bearer mine", "Bearer " + value},
			{"another placeholder", "POST", "/v1/x", "Authorization", "Bearer " + secrets.NewPlaceholder(), "Bearer " + value},
			{"another method", "GET", "/v1/x", "Authorization", "Bearer " + s.Placeholder, "Bearer " + s.Placeholder},
			{"another path", "POST", "/v2/x", "Authorization", "Bearer " + s.Placeholder, "Bearer " + s.Placeholder},
			{"a path that is not clear", "POST", "/v1/../v2", "Authorization", "Bearer " + s.Placeholder, "Bearer " + s.Placeholder},
			{"another method behind the method", "POST", "/v1/x", "X-HTTP-Method-Override", "GET", ""},
			{"the header named as one of the connection", "POST", "/v1/x", "Connection", "Authorization", "Bearer " + value},
		} {
			if c.Transport.(*http.Transport).Protocols == nil && x.header == "Connection" {
				continue // HTTP/2 has none
			}
			do(t, c, x.method, w.url(x.path), nil, func(r *http.Request) { r.Header.Set(x.header, x.value) })
			h := <-seen
			if got := h.Get("Authorization"); got != x.want {
				t.Errorf("%s: the server saw %q, not %q", x.what, got, x.want)
			}
			rec := w.log.next(t)
			if put := strings.Contains(h.Get("Authorization"), value) || strings.Contains(h.Get("Authorization"), "Basic"); put != (len(rec.Secrets) == 1 && rec.Secrets[0] == "KEY") {
				t.Errorf("%s: the record is %+v", x.what, rec)
			}
			if strings.Contains(fmt.Sprintf("%+v", rec), value) {
				t.Errorf("%s: the record has the secret", x.what)
			}
		}
		// The placeholder in another header stays.
		do(t, c, "POST", w.url("/v1/x"), nil, func(r *http.Request) { r.Header.Set("X-Key", s.Placeholder) })
		if h := <-seen; h.Get("X-Key") != s.Placeholder {
			t.Errorf("another header is %q", h.Get("X-Key"))
		}
	}, treated(newRule(t, bearer(nil), s)))
}

// TestPartsOfAnswers are not asked for where a secret could be in them.
func TestPartsOfAnswers(t *testing.T) {
	seen := make(chan http.Header, 1)
	for _, with := range []bool{true, false} {
		rule := newRule(t, bearer(nil), newSecretOf("Authorization"))
		if !with {
			rule = Open("rule")
		}
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header }, treated(rule))
		do(t, w.client(false), "GET", w.url("/"), nil, func(r *http.Request) {
			for _, name := range []string{"Range", "If-Range", "Request-Range"} {
				r.Header.Set(name, "bytes=0-3")
			}
		})
		h := <-seen
		for _, name := range []string{"Range", "If-Range", "Request-Range"} {
			if got := h.Get(name); (got == "") != with {
				t.Errorf("with a secret %t: %s is %q", with, name, got)
			}
		}
	}
}

// TestSecretWithoutTLS passes only if both the policy and the secret say so.
func TestSecretWithoutTLS(t *testing.T) {
	for _, c := range []struct{ policy, binding, want bool }{{false, false, false}, {true, false, false}, {false, true, false}, {true, true, true}} {
		s := newSecretOf("Authorization")
		s.Binding.Plain = c.binding
		seen := make(chan string, 1)
		rule := newRule(t, bearer(func(t *api.NetworkTreatment) { t.Secret.Plain = c.policy }), s)
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }, withoutTLS, treated(rule))
		do(t, w.client(false), "GET", w.url("/"), nil, func(r *http.Request) { r.Header.Set("Authorization", s.Placeholder) })
		if got := <-seen; (got == value) != c.want || got != value && got != s.Placeholder {
			t.Errorf("policy %t, secret %t: the server saw %q", c.policy, c.binding, got)
		}
	}
}

func TestSecretOfAnotherName(t *testing.T) {
	s := newSecretOf("Authorization")
	s.Binding.Names = []string{"llm.example.com"}
	seen := make(chan string, 1)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Authorization") }, treated(newRule(t, bearer(nil), s)))
	do(t, w.client(false), "GET", w.url("/"), nil, func(r *http.Request) { r.Header.Set("Authorization", s.Placeholder) })
	if got := <-seen; got != s.Placeholder {
		t.Errorf("the server saw %q", got)
	}
}

// TestHeaders are put into one request: one of a secret that any server and header may have, and one
// without a secret.
func TestHeaders(t *testing.T) {
	s := newSecretOf(secrets.Any)
	s.Binding.Names = []string{secrets.Any}
	rule := newRule(t, api.NetworkTreatment{Headers: []api.NetworkSecret{{Header: "x-key", Value: "key ${KEY}"}, {Header: "X-Team", Value: "blue", Plain: true}}}, s)
	for _, tls := range []bool{true, false} {
		seen := make(chan http.Header, 1)
		options := []option{treated(rule)}
		if !tls {
			options = append(options, withoutTLS)
		}
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header; _, _ = io.WriteString(w, value) }, options...)
		_, body := do(t, w.client(false), "GET", w.url("/"), nil, func(r *http.Request) { r.Header.Set("X-Team", "mine") })
		h := <-seen
		if got := h.Get("X-Key"); (got == "key "+value) != tls || !tls && got != "" {
			t.Errorf("TLS %t: the header with the secret is %q", tls, got)
		}
		if got := h["X-Team"]; len(got) != 1 || got[0] != "blue" {
			t.Errorf("TLS %t: the header without one is %q", tls, got)
		}
		if strings.Contains(body, value) {
			t.Errorf("TLS %t: the answer is %q", tls, body)
		}
	}
}

// TestTwoSecrets are in one header, and one of them looks like a name of the other.
func TestTwoSecrets(t *testing.T) {
	user, key := newSecretOf("X-Auth"), newSecretOf("X-Auth")
	user.Name, user.Value = "USER", secrets.NewValue("${KEY}-user")
	rule := newRule(t, api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "x-auth", Value: "${USER}:${KEY}"}}, user, key)
	seen := make(chan string, 1)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("X-Auth") }, treated(rule))
	do(t, w.client(true), "GET", w.url("/"), nil, nil)
	if got := <-seen; got != "${KEY}-user:"+value {
		t.Errorf("the server saw %q", got)
	}
}

func TestNewRuleRefuses(t *testing.T) {
	good := newSecretOf("Authorization")
	for what, c := range map[string]struct {
		edit  func(*api.NetworkTreatment)
		spoil func(*Secret)
	}{
		"no such secret":   {nil, func(s *Secret) { s.Name = "OTHER" }},
		"no value":         {nil, func(s *Secret) { s.Value = secrets.Value{} }},
		"another header":   {nil, func(s *Secret) { s.Binding.Header = "X-Key" }},
		"bound to nothing": {nil, func(s *Secret) { s.Binding.Names = nil }},
		"bad placeholder":  {nil, func(s *Secret) { s.Placeholder = "x" }},
		"bad path":         {nil, func(s *Secret) { s.Binding.Paths = []string{"x"} }},
		"bad method":       {nil, func(s *Secret) { s.Binding.Methods = []string{"x"} }},
		"no name":          {func(t *api.NetworkTreatment) { t.Secret.Value = "x" }, nil},
		"path":             {func(t *api.NetworkTreatment) { t.Paths = []string{"x"} }, nil},
		"method":           {func(t *api.NetworkTreatment) { t.Methods = []string{"x"} }, nil},
	} {
		s := good
		if c.spoil != nil {
			c.spoil(&s)
		}
		_, err := NewRule(name, bearer(c.edit), []Secret{s})
		if err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", newRule(t, bearer(nil), good), newRule(t, bearer(nil), good), newRule(t, bearer(nil), good)); strings.Contains(text, value) {
		t.Errorf("a rule prints as %s", text)
	}
}

// TestEcho has a server send back what it got, in every place that there is.
func TestEcho(t *testing.T) {
	key := `sk-"quotes"+and/more-0123456789`
	s := newSecretOf("Authorization")
	s.Value = secrets.NewValue(key)
	quoted, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	// The last one is what the guest's own credentials become.
	forms := []string{key, string(quoted), url.QueryEscape(key), url.PathEscape(key), base64.StdEncoding.EncodeToString([]byte("git:" + key))}
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("the server may compress: %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Link", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusEarlyHints)
		body := r.Header.Get("Authorization") + strings.Join(forms, " ")
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if r.URL.Path == "/trailers" {
			w.Header().Del("Content-Length")
		}
		// One byte at a time.
		for i := range len(body) {
			_, _ = io.WriteString(w, body[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
		w.Header().Set(http.TrailerPrefix+"X-Trailer", r.Header.Get("Authorization"))
	}, func(t *testing.T, w *world, c *http.Client) {
		for _, auth := range []string{"Bearer " + s.Placeholder, "Basic " + base64.StdEncoding.EncodeToString([]byte("git:"+s.Placeholder))} {
			for _, path := range []string{"/", "/trailers"} {
				res, body := do(t, c, "GET", w.url(path), nil, func(r *http.Request) {
					r.Header.Set("Authorization", auth)
					r.Header.Set("Accept-Encoding", "gzip")
				})
				all := fmt.Sprint(res.Header, res.Trailer, body)
				for i, f := range forms {
					if i == len(forms)-1 && !strings.HasPrefix(auth, "Basic") {
						continue // it was not sent
					}
					if strings.Contains(all, f) {
						t.Errorf("the guest sees %q in %v %v %q", f, res.Header, res.Trailer, body)
					}
				}
				if !strings.Contains(body, "***") || len(body) < 200 {
					t.Errorf("the body is %q", body)
				}
			}
		}
		if res, _ := do(t, c, "GET", w.url("/"), nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.Placeholder) }); res.Header.Get("X-Echo") != "Bearer "+s.Placeholder {
			t.Errorf("the header is %q, without the placeholder", res.Header.Get("X-Echo"))
		}
	}, treated(newRule(t, bearer(nil), s)))
}

func maskAll(t *testing.T, text string, cut func(io.Reader) io.Reader, masks ...mask) string {
	t.Helper()
	res := &http.Response{Header: http.Header{}, Body: io.NopCloser(cut(strings.NewReader(text)))}
	maskBody(res, masks)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMask(t *testing.T) {
	whole := func(r io.Reader) io.Reader { return r }
	long := strings.Repeat("filler ", 20000)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"nothing", "nothing"},
		{value, strings.Repeat("*", len(value))},
		{value + value, strings.Repeat("*", 2*len(value))},
		{"a" + value + "b" + value[:10], "a" + strings.Repeat("*", len(value)) + "b" + value[:10]},
		{long + value + long, long + strings.Repeat("*", len(value)) + long},
		{value[:20] + value, value[:20] + strings.Repeat("*", len(value))},
	} {
		if got := maskAll(t, c.text, whole, newMask(value)); got != c.want {
			t.Errorf("%.50q becomes %.80q", c.text, got)
		}
		if len(c.text) > 1000 {
			continue
		}
		// In pieces no more than the slack may pass.
		slack := newMask(value).slack
		if got := maskAll(t, c.text, iotest.OneByteReader, newMask(value)); len(got) != len(c.want) || strings.Contains(got, value[:slack+1]) && !strings.Contains(c.want, value[:slack+1]) {
			t.Errorf("%.50q becomes %.80q in pieces", c.text, got)
		}
	}
}

// TestMaskDoesNotDelay sends messages that end as a secret begins: each must pass before the
// next one comes.
func TestMaskDoesNotDelay(t *testing.T) {
	r, w := io.Pipe()
	res := &http.Response{Header: http.Header{}, Body: r}
	maskBody(res, []mask{newMask(value)})
	for _, message := range []string{"ends with s", "sk", value[:newMask(value).slack], "next"} {
		go func() { _, _ = io.WriteString(w, message) }()
		b := make([]byte, len(message))
		if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != message {
			t.Errorf("%q arrives as %q, %v", message, b, err)
		}
	}
}

func TestMaskLeavesEncodedBodies(t *testing.T) {
	res := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(strings.NewReader(value))}
	maskBody(res, []mask{newMask(value)})
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != value {
		t.Errorf("it is %q, %v", b, err)
	}
}

// FuzzMask cuts a body with secrets anywhere.
func FuzzMask(f *testing.F) {
	f.Add([]byte("x"), []byte("y"), uint8(3), uint8(1))
	f.Add([]byte(value[:9]), []byte(value[10:]), uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, before, after []byte, size, times uint8) {
		text := append(append(bytes.Clone(before), bytes.Repeat([]byte(value), int(times%4))...), after...)
		m := newMask(value)
		res := &http.Response{Header: http.Header{}, Body: io.NopCloser(&pieces{text, int(size%40) + 1})}
		maskBody(res, []mask{m})
		got, err := io.ReadAll(res.Body)
		if err != nil || len(got) != len(text) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(text), err)
		}
		for i := range got {
			if got[i] != text[i] && got[i] != '*' {
				t.Fatalf("byte %d of %q becomes that of %q", i, text, got)
			}
		}
		if bytes.Contains(text, []byte(value)) && bytes.Contains(got, []byte(value)) {
			t.Fatalf("%q has the secret", got)
		}
		if i := bytes.Index(text, []byte(value)); i >= 0 && !bytes.Equal(got[i+m.slack:i+len(value)], bytes.Repeat([]byte("*"), len(value)-m.slack)) {
			t.Fatalf("%q has more than the beginning of the secret", got)
		}
	})
}

// pieces is a reader of a few bytes at a time.
type pieces struct {
	text []byte
	size int
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.text)
	p.text = p.text[n:]
	return n, nil
}

// TestOnce sends without a guest, and never twice.
func TestOnce(t *testing.T) {
	t.Run("HTTP/2", func(t *testing.T) { testOnce(t) })
	t.Run("HTTP/1.1", func(t *testing.T) { testOnce(t, http1Server) })
}

func testOnce(t *testing.T, options ...option) {
	s := newSecretOf("Authorization")
	seen := make(chan string, 10)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		if r.URL.Path == "/break" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, value)
	}, append(options, treated(newRule(t, bearer(nil), s)))...)
	request := func(path string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.url(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "x") // net/http would try again
		return r
	}
	up := w.proxy.Upstream(w.flow)
	defer up.Close()
	res, err := up.Once(request("/"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != strings.Repeat("*", len(value)) || <-seen != "Bearer "+value {
		t.Errorf("the answer is %q, %v", body, err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
	if _, err := up.Once(request("/break")); err == nil || isNotSent(err) {
		t.Errorf("a server that broke off: %v", err)
	}
	if n := len(seen); n != 1 {
		t.Errorf("the server has seen it %d times", n)
	}
	nowhere := w.flow
	nowhere.Dial = ViaProxy(mustURL(t, "http://127.0.0.1:1"), failingDial, name, 443)
	if _, err := w.proxy.Upstream(nowhere).Once(request("/")); !isNotSent(err) {
		t.Errorf("a server that is not reached: %v", err)
	}
}

func isNotSent(err error) bool { return errors.Is(err, ErrNotSent) }

func failingDial(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }

// TestTheRuleInForce is that of each request: a connection goes on with another secret, and with a
// rule that allows nothing.
func TestTheRuleInForce(t *testing.T) {
	one, two := newSecretOf("Authorization"), newSecretOf("Authorization")
	two.Value, two.Placeholder = secrets.NewValue("another-secret-of-the-same-name"), one.Placeholder
	var rule atomic.Pointer[Rule]
	seen := make(chan string, 1)
	protocols(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.RemoteAddr + r.Header.Get("Authorization") }, func(t *testing.T, w *world, c *http.Client) {
		rule.Store(newRule(t, bearer(nil), one))
		do(t, c, "GET", w.url("/"), nil, nil)
		before, ok := strings.CutSuffix(<-seen, "Bearer "+value)
		rule.Store(newRule(t, bearer(nil), two))
		do(t, c, "GET", w.url("/"), nil, nil)
		after, too := strings.CutSuffix(<-seen, "Bearer "+two.Value.Reveal())
		if !ok || !too || before != after {
			t.Errorf("the server saw the secrets %t, %t on the connections of %s and %s", ok, too, before, after)
		}
		rule.Store(Closed("rules."+name, errors.New("there is no secret KEY")))
		if res, body := do(t, c, "GET", w.url("/"), nil, nil); res.StatusCode != http.StatusForbidden || !strings.Contains(body, "no secret KEY") || len(seen) > 0 {
			t.Errorf("a closed rule: %d %s", res.StatusCode, body)
		}
		rule.Store(Open("a rule"))
		do(t, c, "GET", w.url("/"), nil, nil)
		if got := <-seen; got != before {
			t.Errorf("an open rule: the server saw %q", got)
		}
	}, func(_ *httptest.Server, w *world) { w.flow.Rule = rule.Load })
}
