package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestCurl and TestPython are clients that are not Go's.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not on this machine")
	}
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, len(body))
	}, func(t *testing.T, w *world, c *http.Client) {
		version := "--http1.1"
		if c.Transport.(*http.Transport).Protocols == nil {
			version = "--http2"
		}
		large := strings.Repeat("x", 2<<20) // curl expects 100 Continue for it
		cmd := exec.CommandContext(t.Context(), curl, "-sS", "--fail", "--max-time", "30", version, "--cacert", w.caFile(),
			"--resolve", net.JoinHostPort(name, strconv.Itoa(int(w.port)))+":127.0.0.1", "-X", "PUT", "-H", "Expect: 100-continue", "--data-binary", "@-", w.url("/up"), w.url("/again"))
		cmd.Stdin = strings.NewReader(large)
		cmd.Env = []string{"NO_PROXY=*"}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "PUT /up 2097152PUT /again") {
			t.Errorf("curl: %v: %s", err, out)
		}
	})
}

func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on this machine")
	}
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, "%s %s", r.Method, body)
	})
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import http.client, socket, ssl, sys
port, ca, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
context = ssl.create_default_context(cafile=ca)
c = http.client.HTTPSConnection(name, port, context=context)
c._create_connection = lambda address, *a, **k: socket.create_connection(("127.0.0.1", port))
for body in (b"one", iter([b"t", b"wo"])):
    c.request("POST", "/", body=body, encode_chunked=True)
    print(c.getresponse().read().decode())
`, strconv.Itoa(int(w.port)), w.caFile(), name)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "POST one\nPOST two\n" {
		t.Errorf("python: %v: %s", err, out)
	}
}

// TestHostProxy reaches a server through a proxy that wants a password.
func TestHostProxy(t *testing.T) {
	asked := make(chan string, 10)
	server := make(chan string, 1)
	via := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		if r.Header.Get("Proxy-Authorization") == "" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		address := <-server
		server <- address
		back, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		defer back.Close()
		front, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer front.Close()
		_, _ = io.WriteString(front, "HTTP/1.1 200 Connection established\r\nX-Via: test\r\n\r\n")
		go func() {
			_, _ = io.Copy(back, buffered)
			back.Close()
		}()
		_, _ = io.Copy(front, back)
	}))
	defer via.Close()
	for _, user := range []string{"", "me:pass@"} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }, func(s *httptest.Server, w *world) {
			if len(server) > 0 {
				<-server
			}
			server <- s.Listener.Addr().String()
			w.flow.Dial = ViaProxy(mustURL(t, strings.Replace(via.URL, "//", "//"+user, 1)), new(net.Dialer).DialContext, name, 443)
		})
		res, body := do(t, w.client(true), "GET", w.url("/"), nil, nil)
		got := <-asked
		switch {
		case user == "" && (res.StatusCode != http.StatusBadGateway || got != "CONNECT "+name+":443 "):
			t.Errorf("without a password: %d, the proxy was asked %q", res.StatusCode, got)
		case user != "" && (body != "hello" || got != "CONNECT "+name+":443 Basic bWU6cGFzcw=="):
			t.Errorf("with a password: %q, the proxy was asked %q", body, got)
		}
		if strings.Contains(body, "pass") {
			t.Errorf("the guest is told the password: %s", body)
		}
	}
}

func TestHostProxyOfNames(t *testing.T) {
	if p, err := NewHostProxy("", "*"); p != nil || err != nil || p.Of(name, 443) != nil {
		t.Errorf("no proxy is %v, %v", p, err)
	}
	p, err := NewHostProxy("http://me:pass@proxy.example.net:3128", "internal.example.com,.lan")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{name: "proxy.example.net:3128", "internal.example.com": "", "x.lan": "", "localhost": ""} {
		got := ""
		if via := p.Of(host, 443); via != nil {
			got = via.Host
		}
		if got != want {
			t.Errorf("%s is reached by %q, not %q", host, got, want)
		}
	}
	for _, bad := range []string{"socks5://proxy.example.net", "http://me:pass@:1:2", "http://", "://pass"} {
		if _, err := NewHostProxy(bad, ""); err == nil || strings.Contains(err.Error(), "pass") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzConnect has a proxy of the host answer anything. What comes behind its answer is the server's, and
// none of it is lost.
func FuzzConnect(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 Connection established\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.0 407 No\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "\x15\x03\x01", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		ours, theirs := net.Pipe()
		done := make(chan bool)
		go func() {
			defer close(done)
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = theirs.Write(answer) // the end of ours
			}
		}()
		conn, err := connect(ours, url.UserPassword("me", "pass"), name+":443")
		if err == nil {
			rest, rerr := io.ReadAll(conn)
			head := len(answer) - len(rest)
			if rerr != nil || !bytes.HasSuffix(answer, rest) || head <= 0 || !bytes.HasPrefix(answer, []byte("HTTP/")) || !bytes.HasSuffix(answer[:head], []byte("\n")) {
				t.Errorf("%q leaves %q, %v", answer, rest, rerr)
			}
		} else if strings.Contains(err.Error(), "bWU6cGFzcw") {
			t.Errorf("the error has the password: %v", err)
		}
		ours.Close()
		<-done
	})
}
