package portguard

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const token = "a-token-of-30-characters.~+/=="

// FuzzRequest has a guard judge and clean requests of any form: no token passes, and no request
// without it.
func FuzzRequest(f *testing.F) {
	f.Add("/a?token="+token, "Bearer "+token, "ramet_port_80=x; a=b", "http://h/?token="+token)
	f.Add("/?t%6fken="+token+"&token="+token, "bearer  "+token, "", "")
	f.Add("/", "", ";;=;", "%%%")
	g := New(func(text string) bool { return text == token }, func() {}, 80, nil, slog.New(slog.DiscardHandler)).(*guard)
	f.Fuzz(func(t *testing.T, target, authorization, cookie, referer string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{"Authorization": {authorization}, "Cookie": {cookie}, "Referer": {referer}}}
		carries := strings.Contains(target, "oken=") || strings.Contains(authorization, token)
		if how := g.admit(r); how != refused && !carries {
			t.Errorf("admitted (%d) without the token", how)
		}
		g.clean(r)
		if v := r.Header.Get("Cookie"); strings.Contains(v, "ramet_port_80=") && !strings.Contains(v, "=ramet_port_") {
			t.Errorf("the server gets cookie %q", v)
		}
		if r.URL.Query().Get("token") == token {
			t.Errorf("the server gets %s", r.URL)
		}
	})
}
