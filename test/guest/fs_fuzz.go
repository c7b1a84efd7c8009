package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fuzzOp is one operation with its arguments. What they mean depends on Op, see
// (*fuzzer).do.
type fuzzOp struct {
	Op   string `json:"op"`
	A    string `json:"a,omitempty"`
	B    string `json:"b,omitempty"`
	Slot int    `json:"slot,omitempty"`
	At   int64  `json:"at,omitempty"`
	Len  int    `json:"len,omitempty"`
	Mode int    `json:"mode,omitempty"`
	// User has it done by the user who is not root.
	User bool `json:"user,omitempty"`
	// Data tells the contents of what is written from others.
	Data int `json:"data,omitempty"`
}

// fuzzStep is an operation that was done.
type fuzzStep struct {
	Op     fuzzOp `json:"op"`
	Result string `json:"result"`
}

// fuzzRequest asks for operations: those given, or Count that follow from Seed
// and from what the operations before did. Then all files are looked at.
type fuzzRequest struct {
	Ops   []fuzzOp `json:"ops,omitempty"`
	Seed  uint64   `json:"seed,omitempty"`
	Count int      `json:"count,omitempty"`
	// Log asks for all steps from the beginning.
	Log bool `json:"log,omitempty"`
}

// fuzzReply is the state after the operations.
type fuzzReply struct {
	Count  int        `json:"count"`  // operations so far
	Digest string     `json:"digest"` // of their results
	Steps  []fuzzStep `json:"steps,omitempty"`
	Error  string     `json:"error,omitempty"`
}

const (
	fuzzSocket = "/run/fuzz.sock"
	fuzzSlots  = 8
	fuzzMaps   = 4
	// fuzzWalk is after how many operations all files are looked at.
	fuzzWalk = 400
)

// fuzzer does operations in the working directory. Its state is that of the
// process: open files and mappings are inherited by a fork.
type fuzzer struct {
	without []string // features
	rng     *rand.Rand
	log     []fuzzStep
	digest  hash.Hash
	fds     [fuzzSlots]int // -1 is closed
	maps    [fuzzMaps]*fuzzMap
	known   map[string]byte // files that are probably there, and what they are
}

// fuzzMap is a shared mapping that is kept for a while. Its file can be found by
// fd only.
type fuzzMap struct {
	fd   int
	data []byte
}

// fuzzTree is what a run begins with, made by fsMakeTree or in the image.
const fuzzTree = "f a *5000; f b *70000; f c ; d d; f d/a hello; d d/d; f d/d/a *4096; h d/b a; l e d; l f a; d g; n g 30; h g/a d/a; d h; d h/a; d h/a/b; f h/a/b/c *9000; l i nothing; p j; f:600@1000.1001 k *300; d:777@1000.1001 l"

// fuzzTrees is how many of them the image has.
const fuzzTrees = 8

func newFuzzer(without string) *fuzzer {
	z := &fuzzer{without: strings.Split(without, ","), digest: sha256.New(), known: map[string]byte{}}
	for i := range z.fds {
		z.fds[i] = -1
	}
	for _, n := range z.tree() {
		if n.kind == 'h' {
			n.kind = 'f'
		}
		z.known[n.name] = n.kind
	}
	unix.Umask(0)
	return z
}

// tree is what the run begins with.
func (z *fuzzer) tree() []fsNode {
	nodes := fsParse(fuzzTree, fsNew)
	if !z.has("chown") {
		for i := range nodes {
			nodes[i].uid, nodes[i].gid = 0, 0
		}
	}
	if !z.has("link") {
		nodes = slices.DeleteFunc(nodes, func(n fsNode) bool { return n.kind == 'h' })
	}
	return nodes
}

// has reports whether a feature is to be used. The features are chown, dirent
// (inodes of entries), dirmtime, dirnlink, exchange, far (offsets of up to 16
// GiB), keepsize, link, order (which of several errors is reported), punch,
// related (renames above and below each other), samegroup (chown by the user),
// suid, tmpfile, user and xattr.
func (z *fuzzer) has(feature string) bool {
	return feature == "" || !slices.Contains(z.without, feature)
}

// fsFuzz serves requests: "run" those on standard input, "serve" those that "do"
// passes on, which start makes a process in the background.
func fsFuzz(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("one of run, serve, start and do is missing")
	}
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory to work in")
	fresh := flags.Bool("make", false, "make the directory")
	without := flags.String("without", "", "features not to use, with commas")
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	if args[0] == "do" {
		return fuzzDo()
	}
	if args[0] == "start" {
		return fuzzStart(args[1:])
	}
	z := newFuzzer(*without)
	if *fresh {
		unix.Umask(0)
		if err := fsMakeTree(*dir, z.tree()); err != nil {
			return 1, err
		}
	}
	if err := os.Chdir(*dir); err != nil {
		return 1, err
	}
	if args[0] == "run" {
		return 0, z.serve(os.Stdin, os.Stdout)
	}
	l, err := net.Listen("unix", fuzzSocket)
	if err != nil {
		return 1, err
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return 1, err
		}
		if err := z.serve(c, c); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		c.Close()
	}
}

// fuzzStart starts "serve" in a session of its own and returns when it serves.
func fuzzStart(args []string) (int, error) {
	c := exec.Command("/proc/self/exe", append([]string{"fs", "fuzz", "serve"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := c.Start(); err != nil {
		return 1, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return 1, fmt.Errorf("the server said %q: %w", line, err)
	}
	return 0, nil
}

// fuzzDo passes standard input to the server and its answers to standard output.
func fuzzDo() (int, error) {
	c, err := net.Dial("unix", fuzzSocket)
	if err != nil {
		return 1, err
	}
	defer c.Close()
	if _, err := io.Copy(c, os.Stdin); err != nil {
		return 1, err
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		return 1, err
	}
	_, err = io.Copy(os.Stdout, c)
	return 0, err
}

func (z *fuzzer) serve(in io.Reader, out io.Writer) error {
	for requests := json.NewDecoder(in); ; {
		var req fuzzRequest
		err := requests.Decode(&req)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(z.handle(req)); err != nil {
			return err
		}
	}
}

func (z *fuzzer) handle(req fuzzRequest) (r fuzzReply) {
	defer func() {
		if p := recover(); p != nil {
			r.Error = fmt.Sprint(p)
		}
	}()
	for _, op := range req.Ops {
		z.step(op)
	}
	z.rng = rand.New(rand.NewPCG(req.Seed, 0))
	for i := range req.Count {
		z.step(z.next())
		if i%fuzzWalk == fuzzWalk-1 {
			z.step(fuzzOp{Op: "walk"})
		}
	}
	if !req.Log {
		z.step(fuzzOp{Op: "walk"})
	}
	r = fuzzReply{Count: len(z.log), Digest: hex.EncodeToString(z.digest.Sum(nil))}
	if req.Log {
		r.Steps = z.log
	}
	return r
}

// step does one operation and notes what came of it.
func (z *fuzzer) step(op fuzzOp) {
	s := fuzzStep{op, ""}
	if op.User {
		s.Result = z.asUser(op)
	} else {
		s.Result = z.do(op)
	}
	z.settle(op)
	z.learn(s)
	z.log = append(z.log, s)
	// What is printed must not depend on the machine.
	fmt.Fprintf(z.digest, "%+v %s\n", s.Op, s.Result)
}

// asUser does an operation in a thread that belongs to the user.
func (z *fuzzer) asUser(op fuzzOp) (result string) {
	t := &fsT{}
	t.user(func() { result = z.do(op) })
	if !z.has("order") && strings.HasPrefix(result, "E") {
		return "refused" // which of several errors is reported is left open by POSIX
	}
	return result
}

// learn keeps known up to date. It may be wrong about files below moved links,
// which does not matter: both sides are wrong alike.
func (z *fuzzer) learn(s fuzzStep) {
	if s.Result != "ok" {
		return
	}
	op := s.Op
	switch op.Op {
	case "put", "linkfd":
		z.know(op.A, 'f')
	case "mkdir":
		z.know(op.A, 'd')
	case "symlink":
		z.know(op.A, 'l')
	case "mkfifo":
		z.know(op.A, 'p')
	case "link":
		z.know(op.B, z.known[op.A])
	case "unlink", "rmdir":
		delete(z.known, op.A)
	case "rename":
		from, to := z.take(op.A), map[string]byte{}
		if op.Mode == unix.RENAME_EXCHANGE {
			to = z.take(op.B)
		} else {
			z.take(op.B)
		}
		for name, kind := range from {
			z.know(op.B+name, kind)
		}
		for name, kind := range to {
			z.know(op.A+name, kind)
		}
	}
}

func (z *fuzzer) know(name string, kind byte) {
	if kind != 0 {
		z.known[path.Clean(name)] = kind
	}
}

// take forgets a file and all below it, and returns what comes behind its name.
func (z *fuzzer) take(name string) map[string]byte {
	taken := map[string]byte{}
	for n, kind := range z.known {
		if rest, ok := strings.CutPrefix(n, name); ok && (rest == "" || rest[0] == '/') {
			taken[rest] = kind
			delete(z.known, n)
		}
	}
	return taken
}

// names returns the known files of some kinds, sorted, so that a choice among
// them follows from the seed.
func (z *fuzzer) names(kinds string) []string {
	var names []string
	for n, kind := range z.known {
		if strings.IndexByte(kinds, kind) >= 0 {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
