package process

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/proxy"
	"ramet.dev/ramet/internal/network/replay"
	"ramet.dev/ramet/internal/network/treatment"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Word is the first argument of the process.
const Word = "network-gateway"

// The descriptors that the process inherits.
const (
	LockFD   = 3
	ReadyFD  = 4
	ConfigFD = 5
	HeldFD   = 6
)

// Grace is how long the gateway goes on that nobody needs: a daemon that is restarted finds it.
const Grace = 30 * time.Second

// Config is in a file in memory, as JSON: others see the arguments of a process. Of it the build is the
// second argument, so that a list of processes shows whose gateway it is.
type Config struct {
	Socket string `json:"socket"`
	Build  string `json:"build"`
	// User is the user and group that the process becomes; 0 stays who it is. NoUser says why.
	User   int    `json:"user,omitempty"`
	NoUser string `json:"no_user,omitempty"`
	// ResolvConf and Hosts are the files of the host's resolver.
	ResolvConf string `json:"resolv_conf"`
	Hosts      string `json:"hosts"`
	// Grace is how long the gateway goes on without sandboxes and daemons.
	Grace time.Duration `json:"grace"`
	// NoHold says why there is no directory for requests that are held; it is empty if HeldFD is one.
	NoHold string `json:"no_hold,omitempty"`
	// Held bounds what is held of a sandbox; zero for held.DefaultLimits.
	Held held.Limits `json:"held,omitzero"`
	// HTTPSProxy and NoProxy are the variables HTTPS_PROXY and NO_PROXY of the host: how the gateway
	// reaches port 443 of names. Guests are not told of them.
	HTTPSProxy string `json:"https_proxy,omitempty"`
	NoProxy    string `json:"no_proxy,omitempty"`
	// Roots are the authorities by which servers are verified, in PEM; nil is those of the machine.
	Roots *string `json:"roots,omitempty"`
}

// Ready is the message of the process to whoever has started it.
type Ready struct {
	Error string `json:"error,omitempty"`
}

// Owner is what the file of the lock says of the process that holds it.
type Owner struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"`
}

// Main runs the gateway if args are those of its process.
func Main(args []string) (code int, is bool) {
	if len(args) != 3 || args[1] != Word {
		return 0, false
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ready := os.NewFile(ReadyFD, "ready")
	err := inherited()
	if err == nil {
		err = run(ready, log)
	}
	if err != nil {
		log.Error("the gateway ends", "error", err)
		tell(ready, err)
		return 1, true
	}
	return 0, true
}

// inherited checks that the process was started as package host does it.
func inherited() error {
	for fd, want := range map[int]uint32{LockFD: syscall.S_IFREG, ReadyFD: syscall.S_IFIFO, ConfigFD: syscall.S_IFREG} {
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != want {
			return errors.New("only a daemon starts the gateway")
		}
		syscall.CloseOnExec(fd)
	}
	return nil
}

// tell says how the start ended, once. It is no error if the daemon is gone.
func tell(ready *os.File, err error) {
	var m Ready
	if err != nil {
		m.Error = err.Error()
	}
	if b, err := json.Marshal(m); err == nil {
		_, _ = ready.Write(b)
	}
	ready.Close()
}

// run serves until nobody needs the gateway.
func run(ready *os.File, log *slog.Logger) error {
	cfg, err := readConfig()
	if err != nil {
		return err
	}
	if err := own(LockFD); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	l, err := control.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	layers, err := confine(&cfg)
	if err != nil {
		l.Close()
		return err
	}
	for _, layer := range layers {
		if !layer.On {
			log.Warn("the gateway lacks a layer of its confinement", "layer", layer.Name, "reason", layer.Reason)
		}
	}
	return serve(ctx, cfg, l, layers, ready, log)
}

// maxConfig bounds the configuration, which may have a bundle of authorities in it.
const maxConfig = MaxRoots + 1<<20 + MaxRoots/32

// MaxRoots bounds Config.Roots, in bytes. In JSON each of its lines has one more.
const MaxRoots = 16 << 20

// readConfig reads the configuration, and looks for the directory that it tells of.
func readConfig() (cfg Config, err error) {
	f := os.NewFile(ConfigFD, "configuration")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxConfig))
	if err == nil && json.Unmarshal(b, &cfg) != nil {
		err = errors.New("it is not in the form of one") // an error of the parser quotes it
	}
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	if cfg.NoHold == "" {
		var st syscall.Stat_t
		if err := syscall.Fstat(HeldFD, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
			return cfg, errors.New("read configuration: the directory of held requests is none")
		}
		syscall.CloseOnExec(HeldFD)
	}
	return cfg, nil
}

// heldDir is the directory of held requests as this process names it. Its user cannot reach it by its
// path: those above it are the daemon's.
var heldDir = fmt.Sprintf("/proc/self/fd/%d", HeldFD)

func serve(ctx context.Context, cfg Config, l *net.UnixListener, layers []control.Layer, ready *os.File, log *slog.Logger) error {
	var lines control.Log
	var addresses ownAddresses
	if err := addresses.refresh(); err != nil {
		l.Close()
		return err
	}
	var g *gateway.Gateway
	treating := treatment.Config{
		NoHold: cfg.NoHold, FS: hostfs.OS, Held: cmp.Or(cfg.Held, held.DefaultLimits), Recorded: replay.DefaultLimits, Own: addresses.has,
		Reach: func(ctx context.Context, tenant string, p *policy.Policy, name string, port uint16) (net.Conn, error) {
			return g.Reach(ctx, tenant, p, name, port)
		},
	}
	if cfg.NoHold == "" {
		treating.HeldDir = heldDir
	}
	if cfg.Roots != nil {
		treating.Roots = x509.NewCertPool()
		treating.Roots.AppendCertsFromPEM([]byte(*cfg.Roots)) // of none, no server is trusted
	}
	t := treatment.New(treating)
	defer func() {
		if err := t.Close(); err != nil {
			log.Error("end the treatment of requests", "error", err)
		}
	}()
	g = gateway.New(gateway.Config{
		Upstream: dns.NewUpstream(cfg.ResolvConf, cfg.Hosts), Log: &lines, Own: addresses.has, Proxy: t, Via: via(cfg, log),
	})
	defer g.Close()
	hello := control.Hello{Build: cfg.Build, PID: os.Getpid(), Confinement: layers}
	if err := t.NoHold(); err != nil {
		hello.NoHold = err.Error()
		log.Warn("requests cannot be held", "error", err)
	}
	tell(ready, nil)
	log.Info("the gateway is ready", "pid", hello.PID)
	return control.NewServer(g, t, &lines, hello, cfg.Grace).Serve(ctx, l)
}

// via returns what connects by the proxy of the host, or nil. The proxy is for TLS at its usual port:
// few proxies make tunnels to others.
func via(cfg Config, log *slog.Logger) func(name string, port uint16) func(ctx context.Context) (net.Conn, error) {
	p, err := proxy.NewHostProxy(cfg.HTTPSProxy, cfg.NoProxy)
	if err != nil {
		log.Warn("the proxy of the host is not used", "error", err)
	}
	if p == nil {
		return nil
	}
	return func(name string, port uint16) func(ctx context.Context) (net.Conn, error) {
		if port != 443 {
			return nil
		}
		u := p.Of(name, port)
		if u == nil {
			return nil
		}
		return proxy.ViaProxy(u, (&net.Dialer{}).DialContext, name, port)
	}
}

// own notes in the file of the lock which process has it.
func own(fd uintptr) error {
	start, err := procfs.StartTime(os.Getpid())
	if err != nil {
		return fmt.Errorf("read the start time of the process: %w", err)
	}
	b, err := json.Marshal(Owner{PID: os.Getpid(), StartTime: start})
	if err != nil {
		return err
	}
	// The file stays open for as long as the process lives: the lock is that of the open file.
	f := os.NewFile(fd, "gateway.lock")
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		return fmt.Errorf("note the owner of the lock: %w", err)
	}
	lock = f
	return nil
}

// lock keeps the file from being closed by the collector of garbage.
var lock *os.File

// ReadOwner reads what own has written.
func ReadOwner(f *os.File) (o Owner, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return o, fmt.Errorf("read the owner of the lock: %w", err)
	}
	return o, nil
}
