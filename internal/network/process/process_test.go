package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/hostuser"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// envProbe has the binary of the test confine itself and try things; it is the directory of a hosts
// file.
const envProbe = "RAMET_TEST_CONFINED"

// envNoHold says why the process has no directory for held requests; else HeldFD is one.
const envNoHold = "RAMET_TEST_NO_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envProbe); dir != "" {
		probe(dir)
		return
	}
	os.Exit(m.Run())
}

// report is what a confined process could do.
type report struct {
	Error  string
	NoHold string
	Layers []control.Layer
	Done   map[string]string // what was tried → its error
}

func probe(dir string) {
	cfg := Config{NoHold: os.Getenv(envNoHold), ResolvConf: "/nonexistent/resolv.conf", Hosts: filepath.Join(dir, "hosts")}
	if os.Geteuid() == 0 {
		user, err := hostuser.FreeRange("/")
		if err != nil {
			cfg.NoUser = err.Error()
		}
		cfg.User = user
	}
	var r report
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		r.Layers, err = confine(&cfg)
	}
	if err != nil {
		r.Error = err.Error()
	} else {
		r.NoHold = cfg.NoHold
		r.Done = attempts(dir, cfg.Hosts, l.Addr().String())
	}
	_ = json.NewEncoder(os.Stdout).Encode(r) // the test sees that nothing came
}

func attempts(dir, hosts, server string) map[string]string {
	tried := map[string]string{}
	try := func(what string, f func() error) {
		tried[what] = ""
		if err := f(); err != nil {
			tried[what] = err.Error()
		}
	}
	try("read hosts", func() error { _, err := os.ReadFile(hosts); return err })
	try("read the list of hosts' directory", func() error { _, err := os.ReadDir(dir); return err })
	try("read /etc/passwd", func() error { _, err := os.ReadFile("/etc/passwd"); return err })
	try("write a file", func() error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) })
	try("hold a request", func() error {
		if err := os.Mkdir(heldDir, 0o700); !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the directory: %w", err)
		}
		path := filepath.Join(heldDir, "request")
		for range 2 {
			if err := hostfs.Replace(hostfs.OS, path, ".new-*", func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err }); err != nil {
				return err
			}
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "x" {
			return fmt.Errorf("it is %q, %w", b, err)
		}
		if entries, err := os.ReadDir(heldDir); err != nil || len(entries) != 1 {
			return fmt.Errorf("there are %v, %w", entries, err)
		}
		return os.Remove(path)
	})
	try("write above the directory of held requests", func() error {
		return os.WriteFile(filepath.Join(heldDir, "..", "new"), nil, 0o600)
	})
	try("link a file into the directory of held requests", func() error {
		return os.Link(hosts, filepath.Join(heldDir, "link"))
	})
	try("make a link in the directory of held requests", func() error {
		return os.Symlink("/etc/passwd", filepath.Join(heldDir, "link"))
	})
	try("run a program", func() error { return exec.Command("/bin/true").Run() })
	try("signal another process", func() error { return unix.Kill(os.Getppid(), 0) })
	try("connect", func() error {
		c, err := net.Dial("tcp", server)
		if err == nil {
			c.Close()
		}
		return err
	})
	try("bind a port", func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		return err
	})
	try("local socket", func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	})
	try("packet socket", func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	})
	try("raw socket", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		if err == nil {
			unix.Close(fd)
		}
		return err
	})
	try("own addresses", func() error {
		var o ownAddresses
		if err := o.refresh(); err != nil {
			return err
		}
		if !o.has(netip.MustParseAddr("127.0.0.1")) || o.has(netip.MustParseAddr("192.0.2.1")) {
			return errors.New("they are wrong")
		}
		return nil
	})
	try("threads", func() error {
		var wg sync.WaitGroup
		all := make(chan bool)
		for range 20 {
			wg.Go(func() {
				runtime.LockOSThread() // which ends with the goroutine
				<-all
			})
		}
		close(all)
		wg.Wait()
		return nil
	})
	try("root", func() error { return unix.Setresuid(0, 0, 0) })
	try("unshare", func() error { return unix.Unshare(unix.CLONE_NEWUSER) })
	try("trace", func() error { return unix.PtraceAttach(os.Getppid()) })
	return tried
}

// TestConfinement has a process confine itself and try what a gateway that was taken over would.
func TestConfinement(t *testing.T) {
	t.Run("holds requests", func(t *testing.T) { testConfinement(t, "") })
	t.Run("holds none", func(t *testing.T) { testConfinement(t, "there is no directory") })
}

func testConfinement(t *testing.T, noHold string) {
	dir := t.TempDir()
	// The process may be another user: the directory of the test is for this one only.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{envProbe + "=" + dir, envNoHold + "=" + noHold, "GORACE=exitcode=0"}
	if noHold == "" {
		held, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		if os.Geteuid() == 0 {
			if err := held.Chmod(0o777); err != nil { // whoever the process becomes
				t.Fatal(err)
			}
		}
		cmd.ExtraFiles = []*os.File{HeldFD - 3: held}
	}
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil || r.Error != "" {
		t.Fatalf("%s: %v", out, err)
	}
	on := map[string]bool{}
	for _, l := range r.Layers {
		t.Logf("%s: %v %s", l.Name, l.On, l.Reason)
		on[l.Name] = l.On
	}
	if !on[layerSeccomp] || !on[layerLimits] || !on[layerDump] {
		t.Errorf("layers that every host of Ramet's has: %v", on)
	}
	holds, writes := "", layerSeccomp
	switch {
	case r.NoHold != "":
		holds = layerSeccomp
		if noHold == "" && (on[layerLandlock] || on[layerUser]) {
			t.Errorf("requests are not held: %s", r.NoHold)
		}
	case on[layerLandlock]:
		writes = layerLandlock
	default:
		writes = layerUser
	}
	for what, needs := range map[string]string{
		"hold a request": holds, "write above the directory of held requests": writes,
		"link a file into the directory of held requests": layerSeccomp, "make a link in the directory of held requests": layerSeccomp,
		"read hosts": "", "read the list of hosts' directory": "", "connect": "", "own addresses": "", "threads": "",
		"read /etc/passwd": layerLandlock, "bind a port": layerLandlock,
		"write a file": writes, "run a program": layerSeccomp, "signal another process": layerSeccomp, "local socket": layerSeccomp, "packet socket": layerSeccomp,
		"raw socket": layerUser, "root": layerSeccomp, "unshare": layerSeccomp, "trace": layerSeccomp,
	} {
		err, tried := r.Done[what]
		switch {
		case !tried:
			t.Errorf("%s: it was not tried", what)
		case needs == "" && err != "":
			t.Errorf("%s: %s", what, err)
		case needs != "" && on[needs] && err == "":
			t.Errorf("%s: it worked, with %s", what, needs)
		}
	}
}

// TestOnlyADaemonStartsIt gives it other descriptors than a daemon does.
func TestOnlyADaemonStartsIt(t *testing.T) {
	if _, is := Main([]string{"ramet", "ls"}); is {
		t.Error("a command is taken for the gateway")
	}
	if _, is := Main([]string{"ramet", Word}); is {
		t.Error("a word without a build is taken for the gateway")
	}
	if err := inherited(); err == nil {
		t.Error("the test's descriptors are taken for those of a daemon")
	}
}

func TestTheOwnerOfTheLock(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := ReadOwner(f); err == nil {
		t.Error("an empty file has an owner")
	}
	if _, err := f.WriteString("a longer text than the owner's: " + string(make([]byte, 100))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := own(uintptr(fd)); err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if o, err := ReadOwner(f); err != nil || o.PID != os.Getpid() || o.StartTime == 0 {
		t.Errorf("owner %+v, %v", o, err)
	}
}

func TestAddressesAreReadAgain(t *testing.T) {
	var o ownAddresses
	if err := o.refresh(); err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("::ffff:127.0.0.1")
	if !o.has(a) {
		t.Error("loopback is not the host's")
	}
	o.known.Store(&addressSet{}) // of long ago, when it had none
	if !o.has(a) {
		t.Error("old addresses are believed")
	}
}

func TestTheProxyOfTheHost(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	for _, none := range []Config{{}, {NoProxy: "*"}, {HTTPSProxy: "socks5://127.0.0.1:1"}} {
		if via(none, log) != nil {
			t.Errorf("%+v has a proxy", none)
		}
	}
	f := via(Config{HTTPSProxy: "http://127.0.0.1:1", NoProxy: ".lan"}, log)
	for _, c := range []struct {
		name string
		port uint16
		want bool
	}{{"a.example.org", 443, true}, {"a.example.org", 80, false}, {"a.example.org", 22, false}, {"a.lan", 443, false}} {
		if got := f(c.name, c.port) != nil; got != c.want {
			t.Errorf("%s:%d goes by the proxy: %t", c.name, c.port, got)
		}
	}
}
