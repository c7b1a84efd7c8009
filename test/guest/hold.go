package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const (
	socketPath = "/run/hold.sock"
	tcpAddress = "127.0.0.1:7000"
	holdDir    = "/var/hold"
)

// item is one kind of state. set brings it into the state v; get proves that it
// works and returns the v it is in. Both are called by one goroutine at a time.
type item interface {
	set(v string) error
	get() (string, error)
}

// Request is what "ask" sends, one for each connection.
type Request struct {
	// Set are new values by item; the item "" stands for all.
	Set map[string]string `json:"set,omitempty"`
	// Get are the items to read; none stands for all.
	Get []string `json:"get,omitempty"`
}

// Reply is what it gets. Before are the values from before Set, if there was
// one.
type Reply struct {
	Before map[string]string `json:"before,omitempty"`
	Values map[string]string `json:"values"`
	Errors map[string]string `json:"errors,omitempty"`
}

// start starts "hold" with its arguments in a session of its own and returns
// when it serves.
func start(args []string) (int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	c := exec.Command("/proc/self/exe", append([]string{"hold"}, args...)...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.ExtraFiles = []*os.File{w}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return 1, err
	}
	w.Close()
	if n, err := r.Read(make([]byte, 1)); n != 1 {
		return 1, fmt.Errorf("hold did not start: %v", err)
	}
	return 0, nil
}

// hold makes the items and serves until it is killed.
func hold(args []string) (int, error) {
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	value := flags.String("value", "start", "first value of all items")
	only := flags.String("only", "", "make these items only, separated by commas")
	still := flags.Bool("still", false, "leave out the item that never waits")
	bulk := flags.Int("bulk", 4, "size of the item bulk, in MiB")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if err := os.MkdirAll(holdDir, 0o755); err != nil {
		return 1, err
	}
	if err := os.MkdirAll("/run", 0o755); err != nil {
		return 1, err
	}
	h := &holder{items: map[string]item{}}
	for name, make := range makers(*bulk) {
		if *only != "" && !strings.Contains(","+*only+",", ","+name+",") || *still && name == "registers" {
			continue
		}
		it, err := make()
		if err != nil {
			return 1, fmt.Errorf("make %s: %w", name, err)
		}
		h.items[name] = it
	}
	if reply := h.serve(Request{Set: map[string]string{"": *value}, Get: []string{}}); len(reply.Errors) > 0 {
		return 1, fmt.Errorf("%v", reply.Errors)
	}
	unixSocket, err := net.Listen("unix", socketPath)
	if err != nil {
		return 1, err
	}
	tcpSocket, err := net.Listen("tcp", tcpAddress)
	if err != nil {
		return 1, err
	}
	ready := os.NewFile(3, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return 1, err
	}
	ready.Close()
	go h.accept(tcpSocket)
	return 1, h.accept(unixSocket)
}

type holder struct {
	mu    sync.Mutex
	items map[string]item
}

func (h *holder) accept(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var req Request
			if err := json.NewDecoder(c).Decode(&req); err != nil {
				fmt.Fprintln(os.Stderr, "decode request:", err)
				return
			}
			// The caller of the exec that started this process is long gone;
			// its pipe must go on taking output.
			fmt.Println("request", req)
			if err := json.NewEncoder(c).Encode(h.serve(req)); err != nil {
				fmt.Fprintln(os.Stderr, "encode reply:", err)
			}
		}()
	}
}

func (h *holder) serve(req Request) Reply {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := Reply{Errors: map[string]string{}}
	if req.Get == nil {
		req.Get = slices.Collect(maps.Keys(h.items))
	}
	if len(req.Set) > 0 {
		out.Before = h.get(req.Get, out.Errors)
	}
	for name, v := range req.Set {
		for n, it := range h.items {
			if name != "" && name != n {
				continue
			}
			if err := it.set(v); err != nil {
				out.Errors[n] = "set: " + err.Error()
			}
		}
	}
	out.Values = h.get(req.Get, out.Errors)
	return out
}

func (h *holder) get(names []string, errs map[string]string) map[string]string {
	values := map[string]string{}
	for _, n := range names {
		it, ok := h.items[n]
		if !ok {
			errs[n] = "there is no such item"
			continue
		}
		v, err := it.get()
		if err != nil {
			errs[n] = "get: " + err.Error()
			continue
		}
		values[n] = v
	}
	return values
}

// ask sends a request of arguments ITEM (get), ITEM=VALUE (set) and =VALUE (set
// all) and prints the reply. -tcp asks over TCP.
func ask(args []string) (int, error) {
	network, address := "unix", socketPath
	req := Request{Set: map[string]string{}}
	for _, a := range args {
		name, value, isSet := strings.Cut(a, "=")
		switch {
		case a == "-tcp":
			network, address = "tcp", tcpAddress
		case isSet:
			req.Set[name] = value
		default:
			req.Get = append(req.Get, a)
		}
	}
	c, err := net.Dial(network, address)
	if err != nil {
		return 1, err
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(req); err != nil {
		return 1, err
	}
	var reply Reply
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return 1, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		return 1, err
	}
	if len(reply.Errors) > 0 {
		return 3, nil
	}
	return 0, nil
}

// number turns a value into a number for items that hold one.
func number(v string) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(v) {
		h = (h ^ uint32(v[i])) * 16777619
	}
	return h&0x3fffffff + 1
}

// numbered is embedded by items that hold number(v) and keep v to compare.
type numbered struct{ want string }

func (n *numbered) check(got uint32) (string, error) {
	if got != number(n.want) {
		return "", fmt.Errorf("holds %s, not %d of %q", strconv.Itoa(int(got)), number(n.want), n.want)
	}
	return n.want, nil
}
