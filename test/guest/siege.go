package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pace is the pause of programs that try the same for as long as they run.
const pace = 10 * time.Millisecond

// howDial says how a connection went, in one word.
func howDial(err error) string {
	switch {
	case err == nil:
		return "connected"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "unreachable"
	}
	return "failed"
}

// knock connects to each address again and again, and prints how that goes when it changes.
func knock(addresses []string) (int, error) {
	var wg sync.WaitGroup
	for _, a := range addresses {
		wg.Go(func() {
			for last := ""; ; time.Sleep(pace) {
				c, err := net.DialTimeout("tcp", a, 20*time.Second)
				if err == nil {
					c.Close()
				}
				if how := howDial(err); how != last {
					fmt.Println(a, how)
					last = how
				}
			}
		})
	}
	wg.Wait()
	return 0, nil
}

// pull downloads again and again, and prints the digest of what came whole, and each break.
func pull(addr string) (int, error) {
	for last := ""; ; time.Sleep(pace) {
		said := ""
		c, err := net.DialTimeout("tcp", addr, 20*time.Second)
		if err == nil {
			h := sha256.New()
			if _, err = io.Copy(h, c); err == nil {
				said = fmt.Sprintf("digest %x", h.Sum(nil))
			}
			c.Close()
		}
		if err != nil {
			said = howDial(err)
		}
		if said != last {
			fmt.Println(said)
			last = said
		}
	}
}

// besiege opens connections at once, sends the same first bytes on each, "hello:NAME" or "-" for none, and
// neither reads nor closes them. It prints how many there are, and with a line of its input how many have ended.
func besiege(addr, count, first string) (int, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2, err
	}
	if name, is := strings.CutPrefix(first, "hello:"); is {
		first = helloFor(name)
	} else if first == "-" {
		first = ""
	}
	var mu sync.Mutex
	var conns []*net.TCPConn
	how := map[string]int{}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c, err := net.DialTimeout("tcp", addr, time.Minute)
			if err == nil {
				_, err = io.WriteString(c, first)
			}
			mu.Lock()
			defer mu.Unlock()
			how[howDial(err)]++
			if err == nil {
				conns = append(conns, c.(*net.TCPConn))
			}
		})
	}
	wg.Wait()
	fmt.Println("connected", how["connected"], "refused", how["refused"], "other", n-how["connected"]-how["refused"])
	for line := make([]byte, 64); ; {
		if _, err := os.Stdin.Read(line); err != nil {
			return 0, nil
		}
		ended := 0
		for _, c := range conns {
			if hasEnded(c) {
				ended++
			}
		}
		fmt.Println("ended", ended)
	}
}

// helloFor returns the first message of a handshake for a name.
func helloFor(name string) string {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake() // it ends with the pipe
	}()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		panic(err)
	}
	return string(b[:n])
}

// hasEnded reports whether a connection is reset or ended by its server. It reads nothing.
func hasEnded(c *net.TCPConn) (ended bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		ended = err != nil || n > 0
	})
	return ended || err != nil
}

// connectMapped connects to an IPv4 address in a socket of IPv6, as the mapped address.
func connectMapped(address string) (int, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return 2, err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	if err != nil {
		return 1, err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	fmt.Println(howDial(err))
	return 0, nil
}

// lookUp asks for records of a type, of names NAME or of NAME with %d in it as often as count says, and
// prints how many answers there were.
func lookUp(kind, name, count string) (int, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answered, failed := 0, 0
	for i := range n {
		each := strings.ReplaceAll(name, "%d", strconv.Itoa(i))
		if kind == "TXT" {
			_, err = net.DefaultResolver.LookupTXT(ctx, each)
		} else {
			_, err = net.DefaultResolver.LookupHost(ctx, each)
		}
		if err == nil {
			answered++
		} else {
			failed++
		}
	}
	fmt.Println("answered", answered, "failed", failed)
	return 0, nil
}

// bombOfConnections has many processes at once connect many times each, and prints how that went.
func bombOfConnections(addr, processes, times string) (int, error) {
	n, err := strconv.Atoi(processes)
	if err != nil {
		return 2, err
	}
	var connected, refused, other, broken atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			var out bytes.Buffer
			cmd := exec.Command("/proc/self/exe", "outside", "flood", addr, times)
			cmd.Stdout = &out
			if cmd.Run() != nil {
				broken.Add(1)
				return
			}
			var c, r, o int64
			if _, err := fmt.Sscanf(out.String(), "connected %d refused %d other %d", &c, &r, &o); err != nil {
				broken.Add(1)
			}
			connected.Add(c)
			refused.Add(r)
			other.Add(o)
		})
	}
	wg.Wait()
	fmt.Println("connected", connected.Load(), "refused", refused.Load(), "other", other.Load(), "broken", broken.Load())
	return 0, nil
}
