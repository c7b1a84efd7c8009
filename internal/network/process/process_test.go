package process

import (
	"encoding/json"
	"errors"
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
)

// envProbe has the binary of the test confine itself and try things; it is the directory of a hosts
// file.
const envProbe = "RAMET_TEST_CONFINED"

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
	Layers []control.Layer
	Done   map[string]string // what was tried → its error
}

func probe(dir string) {
	cfg := Config{ResolvConf: "/nonexistent/resolv.conf", Hosts: filepath.Join(dir, "hosts")}
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
		r.Layers, err = confine(cfg)
	}
	if err != nil {
		r.Error = err.Error()
	} else {
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
	cmd.Env = []string{envProbe + "=" + dir, "GORACE=exitcode=0"}
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
	for what, needs := range map[string]string{
		"read hosts": "", "read the list of hosts' directory": "", "connect": "", "own addresses": "", "threads": "",
		"read /etc/passwd": layerLandlock, "bind a port": layerLandlock,
		"write a file": layerSeccomp, "run a program": layerSeccomp, "signal another process": layerSeccomp, "local socket": layerSeccomp, "packet socket": layerSeccomp,
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
		t.Error("a word without a configuration is taken for the gateway")
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
