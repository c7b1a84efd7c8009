package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outside uses the network: "outside WHAT ARGS…".
func outside(args []string) (int, error) {
	switch args[0] {
	case "show":
		return showNetwork(args[1:])
	case "dial":
		return dialOutside(args[1:])
	case "verify":
		return verify(args[1], args[2])
	case "download":
		return download(args[1])
	case "hold":
		return holdOutside(args[1], args[2])
	case "request":
		return requestOutside(args[1], args[2], args[3])
	case "ask":
		return askOutside(args[1], args[2:])
	case "flood":
		return flood(args[1], args[2])
	case "ping":
		return ping(args[1])
	case "smuggle":
		return smuggle(args[1])
	case "speed":
		return speed(args[1], args[2])
	case "knock":
		return knock(args[1:])
	case "pull":
		return pull(args[1])
	case "besiege":
		return besiege(args[1], args[2], args[3])
	case "mapped":
		return connectMapped(args[1])
	case "look":
		return lookUp(args[1], args[2], args[3])
	case "bomb":
		return bombOfConnections(args[1], args[2], args[3])
	}
	return 2, fmt.Errorf("outside %s: no such thing", args[0])
}

// showNetwork prints the interfaces, and the addresses of names.
func showNetwork(names []string) (int, error) {
	list, err := net.Interfaces()
	if err != nil {
		return 1, err
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			return 1, err
		}
		fmt.Println(i.Index, i.Name, i.MTU, i.HardwareAddr, i.Flags&net.FlagUp != 0, addrs)
	}
	for _, name := range names {
		addrs, err := net.LookupHost(name)
		slices.Sort(addrs)
		fmt.Println(name, addrs, err)
	}
	return 0, nil
}

// dialOutside connects to each address and prints how that went, with the time if it was long.
func dialOutside(to []string) (int, error) {
	for _, addr := range to {
		began := time.Now()
		c, err := net.DialTimeout("tcp", addr, 20*time.Second)
		var errno syscall.Errno
		switch {
		case errors.As(err, &errno):
			fmt.Print(addr, ": ", errno)
		case err != nil:
			fmt.Print(addr, ": ", err)
		default:
			fmt.Print(addr, ": connected")
			c.Close()
		}
		if d := time.Since(began); d > 10*time.Second { // a slow machine takes a second or two
			fmt.Print(" after ", d)
		}
		fmt.Println()
	}
	return 0, nil
}

// verify prints whether a server has a certificate for name that is trusted.
func verify(addr, name string) (int, error) {
	c, err := tls.Dial("tcp", addr, &tls.Config{ServerName: name})
	if err != nil {
		fmt.Println(err)
		return 0, nil
	}
	defer c.Close()
	fmt.Println("verified")
	return 0, nil
}

// download prints the digest of what a server sends. It begins again after a reset. The reader
// of its output sets the pace: a line comes with each MiB.
func download(addr string) (int, error) {
	for {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return 1, err
		}
		h := sha256.New()
		for err == nil {
			if _, err = io.CopyN(h, c, 1<<20); err == nil {
				fmt.Println("MiB")
			}
		}
		c.Close()
		switch {
		case err == io.EOF:
			fmt.Printf("digest %x\n", h.Sum(nil))
			return 0, nil
		case errors.Is(err, syscall.ECONNRESET):
			fmt.Println("reset")
		default:
			return 1, err
		}
	}
}

// askOutside makes requests of HTTP on one connection, each of them "METHOD HOST", and prints the statuses.
func askOutside(addr string, requests []string) (int, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return 1, err
	}
	defer c.Close()
	b := bufio.NewReader(c)
	for _, r := range requests {
		method, host, _ := strings.Cut(r, " ")
		if _, err := fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", method, host); err != nil {
			return 1, err
		}
		answer := textproto.NewReader(b)
		line, err := answer.ReadLine()
		if err != nil {
			return 1, err
		}
		header, err := answer.ReadMIMEHeader()
		if err != nil {
			return 1, err
		}
		n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
		if err == nil {
			_, err = io.CopyN(io.Discard, b, n)
		}
		if err != nil {
			return 1, err
		}
		fmt.Println(r, strings.Fields(line)[1])
	}
	return 0, nil
}

// holdOutside opens connections, and says for each line of its input how many of them are reset.
func holdOutside(addr, count string) (int, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2, err
	}
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			return 1, err
		}
	}
	fmt.Println("held")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		reset, whole := 0, 0
		for _, c := range conns {
			_, err := c.Write([]byte("x"))
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			switch {
			case err == nil:
				whole++
			case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
				reset++
			default:
				fmt.Println(err)
			}
		}
		fmt.Println("whole", whole, "reset", reset)
	}
	return 0, nil
}

// requestOutside makes a request and prints the status and the body of the answer.
func requestOutside(method, url, body string) (int, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 2, err
	}
	r.Close = true // the server ends the connection
	if key := os.Getenv("KEY"); key != "" {
		r.Header.Set("X-Key", key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 1, err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	fmt.Printf("%d %s\n", a.StatusCode, b)
	return 0, err
}

// speed measures what a connection does: "down", "up", "ask" or "dial".
func speed(what, addr string) (int, error) {
	const long = 2 * time.Second
	dial := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			panic(err)
		}
		return c
	}
	var times []time.Duration
	began := time.Now()
	switch what {
	case "down", "up":
		c := dial()
		total := 0
		buf := make([]byte, 256<<10)
		for time.Since(began) < long {
			move := c.Read
			if what == "up" {
				move = c.Write
			}
			n, err := move(buf)
			if total += n; err != nil {
				return 1, err
			}
		}
		fmt.Printf("%s %.2f Gbit/s\n", what, float64(total)*8/1e9/time.Since(began).Seconds())
		return 0, nil
	case "ask":
		c := dial()
		buf := make([]byte, 64)
		for time.Since(began) < long {
			t := time.Now()
			if _, err := c.Write(buf); err != nil {
				return 1, err
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				return 1, err
			}
			times = append(times, time.Since(t))
		}
	case "dial":
		for time.Since(began) < long {
			t := time.Now()
			c := dial()
			times = append(times, time.Since(t))
			c.Close()
		}
	}
	slices.Sort(times)
	fmt.Println(what, len(times), "times, median", times[len(times)/2], "and 99%", times[len(times)*99/100])
	return 0, nil
}
