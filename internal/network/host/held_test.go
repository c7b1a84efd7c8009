package host

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

const secretText = "sk-very-secret-0123456789"

// site is a server of HTTP that counts the requests for each path.
type site struct {
	*httptest.Server
	port uint16

	mu     sync.Mutex
	served map[string]int
	asked  chan string // has room; one for each request
}

func newSite(t *testing.T) *site {
	s := &site{served: map[string]int{}, asked: make(chan string, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.served[r.URL.Path]++
		s.mu.Unlock()
		s.asked <- r.URL.Path + " " + r.Header.Get("X-Key")
	}))
	t.Cleanup(s.Close)
	addr, is := s.Listener.Addr().(*net.TCPAddr)
	if !is {
		t.Fatal("the server has no port")
	}
	s.port = uint16(addr.Port)
	return s
}

func (s *site) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[path]
}

// holding is a registration that has writes to the site held, and a secret put into requests.
func (s *site) holding(t *testing.T, id string) gateway.Registration {
	r := registration(t, id, fmt.Sprintf("127.0.0.1:%d", s.port), fmt.Sprintf("a.example.org:%d", s.port))
	r.Policy.Document.Rules = map[string]api.NetworkTreatment{"a.example.org": {
		Hold: api.HoldWrites, Secret: &api.NetworkSecret{Header: "X-Key", Value: "${KEY}", Plain: true},
	}}
	r.Secrets = []gateway.Secret{{
		Name: "KEY", Value: secrets.NewValue(secretText), Binding: secrets.Binding{Names: []string{"a.example.org"}, Header: "X-Key", Plain: true},
	}}
	return r
}

// post has the guest send a write that it does not read the answer of, and returns when it is held.
func (s *site) post(d *daemon, g *sentry, path string) held.Request {
	d.t.Helper()
	g.lookUp("a.example.org")
	conn := g.open(fmt.Sprintf("127.0.0.1:%d", s.port))
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a.example.org:%d\r\nContent-Length: 4\r\n\r\nbody", path, s.port); err != nil {
		d.t.Fatal(err)
	}
	var found held.Request
	polltest.Eventually(d.t, 20*time.Second, path+" is held", func() bool {
		for _, r := range d.held() {
			if r.Target == path {
				found = r
			}
		}
		return found.ID != ""
	})
	return found
}

func (d *daemon) held() (list []held.Request) {
	d.t.Helper()
	err := d.Client().Held(d.t.Context(), "", func(r held.Request) error { list = append(list, r); return nil })
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}

// lookUp asks for the addresses of a name.
func (s *sentry) lookUp(name string) {
	s.t.Helper()
	text, err := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA).Pack()
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	ch := s.channel
	s.next++
	flow := s.next
	s.mu.Unlock()
	if err := ch.Send(&wire.Message{Kind: wire.Question, Flow: flow, Payload: text}, -1); err != nil {
		s.t.Fatal(err)
	}
	for answered := false; !answered; {
		if err := ch.Receive(func(m wire.Message, _ *os.File) error { answered = m.Kind == wire.Answer && m.Flow == flow; return nil }); err != nil {
			s.t.Fatal(err)
		}
	}
}

// newHoldingDaemon returns a daemon that has a directory for held requests, which others cannot enter.
func newHoldingDaemon(t *testing.T) (*daemon, Config) {
	cfg := newConfig(t)
	if err := os.WriteFile(cfg.Hosts, []byte("127.0.0.1 a.example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.HeldDir = filepath.Join(t.TempDir(), "data", "held")
	cfg.HTTPSProxy, cfg.NoProxy = "http://me:proxy-password@127.0.0.1:1", "*"
	return newDaemon(t, cfg, nil), cfg
}

// createAs is create with a registration.
func (d *daemon) createAs(r gateway.Registration) *sentry {
	d.t.Helper()
	s := d.create(r.ID, "192.0.2.1:1")
	if err := d.Put(d.t.Context(), r, nil); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// TestHeldRequests are the daemon's data: they outlive gateways, of which each is another user.
func TestHeldRequests(t *testing.T) {
	d, cfg := newHoldingDaemon(t)
	s := newSite(t)
	g := d.createAs(s.holding(t, "one"))
	if h, err := d.Hello(t.Context()); err != nil || h.NoHold != "" {
		t.Skipf("this host has no Landlock: %s, %v", h.NoHold, err)
	}
	first, second := s.post(d, g, "/first"), s.post(d, g, "/second")
	if first.State != held.Waiting || first.Sandbox != "one" || first.Name != "a.example.org" || first.Size != 4 {
		t.Errorf("held %+v", first)
	}
	if r, err := d.Client().Release(t.Context(), "one", first.ID, false, nil); err != nil || r.State != held.Sent || r.Status != 200 {
		t.Errorf("released: %+v, %v", r, err)
	}
	if got := <-s.asked; got != "/first "+secretText {
		t.Errorf("the server saw %q", got)
	}
	secretsAreNowhere(t, d.pid(), cfg)
	for range 2 { // another gateway, who is another user if the daemon is root
		if err := syscall.Kill(d.pid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-g.attached
		if list := d.held(); len(list) != 2 || list[1].ID != second.ID || list[1].State != held.Waiting {
			t.Errorf("another gateway has %+v", list)
		}
	}
	// Another daemon, whose sandbox is gone: it says under which policy the request is sent.
	d.Close()
	next := newDaemon(t, cfg, nil)
	if err := next.Adopt(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err := next.Client().Release(t.Context(), "one", second.ID, false, nil)
	if err == nil || s.count("/second") != 0 {
		t.Errorf("released under no policy: %v", err)
	}
	r := s.holding(t, "parent")
	r.Policy.Document.Rules["a.example.org"] = api.NetworkTreatment{Secret: r.Policy.Document.Rules["a.example.org"].Secret}
	if err := next.Client().ReleaseAll(t.Context(), "one", &r); err != nil || s.count("/second") != 1 {
		t.Errorf("released: %v", err)
	}
	if err := next.Client().DropAll(t.Context(), "one", true); err != nil || len(next.held()) != 0 {
		t.Errorf("dropped: %v, %+v", err, next.held())
	}
	if entries, err := os.ReadDir(cfg.HeldDir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// secretsAreNowhere looks for secrets where other processes can see them.
func secretsAreNowhere(t *testing.T, pid int, cfg Config) {
	t.Helper()
	files := []string{logFile(cfg.Dir), lockFile(cfg.Dir)}
	for _, name := range []string{"cmdline", "environ"} {
		files = append(files, fmt.Sprintf("/proc/%d/%s", pid, name))
	}
	entries, err := os.ReadDir(cfg.HeldDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files = append(files, filepath.Join(cfg.HeldDir, e.Name()))
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrPermission) {
			continue // nor can others
		}
		if err != nil || strings.Contains(string(b), secretText) || strings.Contains(string(b), "proxy-password") {
			t.Errorf("%s has a secret, or %v", name, err)
		}
	}
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil || !strings.Contains(string(limits), "Max core file size        0                    0 ") {
		t.Errorf("a core may be dumped: %s, %v", limits, err)
	}
}

// TestAGatewayThatIsKilledWhileItSends never sends a request twice, and loses none.
func TestAGatewayThatIsKilledWhileItSends(t *testing.T) {
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("RAMET_TEST_KILLS")); err == nil {
		kills = n
	}
	d, _ := newHoldingDaemon(t)
	s := newSite(t)
	g := d.createAs(s.holding(t, "one"))
	if h, err := d.Hello(t.Context()); err != nil || h.NoHold != "" {
		t.Skipf("this host has no Landlock: %s, %v", h.NoHold, err)
	}
	told := map[string]bool{} // requests whose release was answered
	paths := map[string]string{}
	for kill := range kills {
		var ids []string
		for i := range 4 {
			path := fmt.Sprintf("/%d-%d", kill, i)
			r := s.post(d, g, path)
			paths[r.ID] = path
			ids = append(ids, r.ID)
		}
		pid := d.pid()
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, id := range ids[:3] {
				if r, err := d.Client().Release(context.Background(), "one", id, false, nil); err == nil && r.State == held.Sent {
					told[id] = true
				}
			}
		})
		for range rand.IntN(3) {
			<-s.asked
		}
		busy := time.Now().Add(time.Duration(rand.IntN(4000)) * time.Microsecond)
		for time.Now().Before(busy) { // the moment is random, and nothing is waited for
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		<-g.attached
	}
	settled := func() bool {
		for _, r := range d.held() {
			if r.State == held.Released || r.State == held.Sending {
				return false
			}
		}
		return true
	}
	polltest.Eventually(t, 20*time.Second, "what was released is sent", settled)
	states := map[held.State]int{}
	list := d.held()
	for _, r := range list {
		states[r.State]++
		n := s.count(paths[r.ID])
		switch {
		case n > 1, r.State == held.Sent && n != 1, r.State == held.Waiting && n != 0, told[r.ID] && r.State != held.Sent:
			t.Errorf("%s is %s, and the server has seen it %d times; told %t", r.ID, r.State, n, told[r.ID])
		case r.State != held.Sent && r.State != held.Waiting && r.State != held.Unknown:
			t.Errorf("%s is %s", r.ID, r.State)
		}
	}
	if len(list) != len(paths) {
		t.Errorf("%d of %d requests are left", len(list), len(paths))
	}
	t.Logf("%d kills: %v", kills, states)
	if err := d.Client().ReleaseAll(t.Context(), "one", nil); err != nil {
		t.Error(err)
	}
	for _, r := range d.held() {
		if n := s.count(paths[r.ID]); n > 1 || r.State == held.Sent && n != 1 || r.State == held.Waiting {
			t.Errorf("at last %s is %s, and the server has seen it %d times", r.ID, r.State, n)
		}
	}
}

// TestADirectoryWithOtherThings has what a gateway that was taken over might leave there: none of it
// becomes the next gateway's.
func TestADirectoryWithOtherThings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's gateway is another user, who is given files")
	}
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for _, path := range []string{outside, filepath.Join(dir, "file")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.Link(outside, filepath.Join(dir, "hard")), os.Mkdir(filepath.Join(dir, "dir"), 0o700)); err != nil {
		t.Fatal(err)
	}
	f, err := openHeld(dir, 12345)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for path, want := range map[string]uint32{dir: 12345, filepath.Join(dir, "file"): 12345, outside: 0, filepath.Join(dir, "link"): 0, filepath.Join(dir, "dir"): 0} {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil || st.Uid != want || st.Gid != want {
			t.Errorf("%s is of user %d, group %d, not %d: %v", path, st.Uid, st.Gid, want, err)
		}
	}
	if _, err := openHeld(outside, 0); err == nil {
		t.Error("a file is taken for the directory")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := openHeld(link, 0); err == nil {
		t.Error("a link is followed")
	}
}
