package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serve serves until it is killed: "serve tcp ADDR", "serve echo ADDR" or "serve http ADDR".
func serve(args []string) (int, error) {
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return 1, err
	}
	if args[0] == "http" {
		return 1, (&http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}).Serve(l)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 1, err
		}
		if args[0] == "echo" {
			go sendBack(c)
			continue
		}
		go converse(c)
	}
}

// sendBack sends back what comes.
func sendBack(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c) // the peer may go
}

// converse does what the first line says.
func converse(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case "echo": // what comes, and at its end a last word
		n, err := io.Copy(c, in)
		note(rest, err)
		fmt.Fprintf(c, "end after %d", n)
	case "send": // as many bytes
		n, _ := strconv.ParseInt(rest, 10, 64)
		_, _ = io.CopyN(c, zeros{}, n) // the peer may go
	case "deaf": // reads nothing
		time.Sleep(time.Hour)
	case "reset":
		_ = c.(*net.TCPConn).SetLinger(0)
	}
}

// note writes how a connection ended to a file, if one is named.
func note(file string, err error) {
	if file == "" {
		return
	}
	text := "eof"
	if errors.Is(err, syscall.ECONNRESET) {
		text = "reset"
	} else if err != nil {
		text = err.Error()
	}
	_ = os.WriteFile(file, []byte(text), 0o644) // its absence is found
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// answer tells a request, or does what its path says.
func answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/upgrade"):
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(c, strings.ToUpper(line))
		}
	case strings.HasSuffix(r.URL.Path, "/stream"):
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(w, "%d\n", i); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			if i == 2 {
				<-r.Context().Done()
				_ = os.WriteFile("/srv/stream-ended", nil, 0o644) // its absence is found
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/break"):
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "part")
		_ = http.NewResponseController(w).Flush() // the client may be gone
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body) // its length is told
	w.Header().Set("X-Guest", "yes")
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%s %s %s %d %s %s", r.Method, r.RequestURI, r.Host, len(body), r.Header.Get("X-Forwarded-Prefix"), r.Header.Get("X-Ramet-Wait"))
}
