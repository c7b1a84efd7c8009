package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// hostile is a page that tries to get at all else that its browser can reach. API and OTHER
// stand for origins. What it got is in the title at the end.
const hostile = `<!doctype html><title>busy</title><script>
const got = [], api = "API", other = "OTHER", socket = other.replace("http", "ws");
const quietly = f => f().catch(() => {});
const within = p => Promise.race([p, new Promise(r => setTimeout(r, 3000))]);
(async () => {
  await quietly(async () => { await navigator.serviceWorker.register("/sw.js", {scope: "/"}); await navigator.serviceWorker.ready; got.push("own-worker") });
  for (const domain of ["localhost", ".localhost", new URL(other).hostname]) document.cookie = "evil=1; path=/; domain=" + domain;
  if (document.cookie.includes("ramet")) got.push("own-cookie:" + document.cookie);
  await quietly(async () => got.push("own:" + (await fetch("/own")).status));
  for (const target of [api + "/v1/sandboxes", api + "/v1/sandboxes/SBX/ports/80/stolen", other + "/stolen"]) {
    await quietly(async () => { await fetch(target, {credentials: "include"}); got.push("read " + target) });
    await quietly(async () => fetch(target, {credentials: "include", mode: "no-cors", method: "POST", body: "x"}));
    await quietly(async () => { await navigator.serviceWorker.register(target, {scope: target}); got.push("worker " + target) });
    await within(new Promise(r => { const i = new Image(); i.onload = () => { got.push("image " + target); r() }; i.onerror = r; i.src = target }));
    await within(new Promise(r => { const f = document.createElement("iframe"); f.onload = r; f.src = target; document.documentElement.append(f) }));
  }
  await within(new Promise(r => { const s = new WebSocket(socket + "/stolen"); s.onopen = () => { got.push("socket"); r() }; s.onerror = r }));
  document.title = "done " + got.join(" | ");
})();
</script>`

// TestBrowserKeepsSandboxesApart lets a real browser in at the ports of two sandboxes, of
// which one attacks the other, and the API.
func TestBrowserKeepsSandboxesApart(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no Chromium on this machine")
	}
	var mu sync.Mutex
	var page string
	var stolen []string
	seen := func(who string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(r.URL.Path, "stolen") || strings.Contains(fmt.Sprint(r.Header), "ramet") {
			stolen = append(stolen, fmt.Sprintf("%s: %s %s %v", who, r.Method, r.URL, r.Header))
		}
	}
	origin, client := portPages(t, map[string]http.Handler{
		sbxA: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen("the attacker", r)
			w.Header().Set("Service-Worker-Allowed", "/")
			w.Header().Set("Content-Type", "text/html")
			if r.URL.Path == "/sw.js" {
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = io.WriteString(w, `self.onfetch = e => e.respondWith(fetch(e.request).catch(() => new Response("worker")))`)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.WriteString(w, page)
		}),
		sbxB: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen("the victim", r)
			// A careless server, which lets everybody read.
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<title>victim</title>secret")
		}),
	}, nil)
	_, a := openSession(t, client, origin, sbxA, "exec", `{"port":80}`)
	_, b := openSession(t, client, origin, sbxB, "exec", `{"port":80}`)
	at := func(s string) string {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u.Scheme + "://" + u.Host
	}
	page = strings.NewReplacer("API", origin, "OTHER", at(b.URL), "SBX", sbxB).Replace(hostile)

	opts := append([]chromedp.ExecAllocatorOption{}, chromedp.DefaultExecAllocatorOptions[:]...)
	for _, flag := range []string{"no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync"} {
		opts = append(opts, chromedp.Flag(flag, true))
	}
	opts = append(opts, chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx, stop := chromedp.NewExecAllocator(ctx, opts...)
	defer stop()
	ctx, leave := chromedp.NewContext(ctx)
	defer leave()
	defer func() {
		if err := chromedp.Cancel(ctx); err != nil { // and wait until it has ended
			t.Error(err)
		}
	}()

	// show navigates to a URL and returns what an expression is there.
	show := func(target, expression string) string {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.Navigate(target)); err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string](expression))
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		return text
	}
	victim := show(b.URL, "document.title")
	show(a.URL, "document.title")
	title, err := chromedp.Run(ctx, chromedp.Poll[string](`document.title.startsWith("done") && document.title`, chromedp.WithPollingTimeout(90*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	cookies := show(at(b.URL)+"/", "document.cookie")
	after := show(at(b.URL)+"/", "document.body.innerText")
	server := show(origin+"/v1/sandboxes/"+sbxA+"/ports/80/", "document.body.innerText")
	if victim != "victim" || after != "secret" {
		t.Errorf("the other sandbox's page is %q, and %q after the attack", victim, after)
	}
	if title != "done own-worker | own:200" {
		t.Errorf("the page got %s", title)
	}
	if cookies != "" {
		t.Errorf("it set cookies of the other's: %s", cookies)
	}
	if !strings.Contains(server, "port-sessions") || strings.Contains(server, "busy") {
		t.Errorf("the API shows %s", server)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, s := range stolen {
		t.Error(s)
	}
}
