package process

import (
	"context"
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
	"ramet.dev/ramet/internal/observe/procfs"
)

// Word is the first argument of the process.
const Word = "network-gateway"

// The descriptors that the process inherits.
const (
	LockFD  = 3
	ReadyFD = 4
)

// Grace is how long the gateway goes on that nobody needs: a daemon that is restarted finds it.
const Grace = 30 * time.Second

// Config is the second argument, as JSON.
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
		err = run(args[2], ready, log)
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
	for fd, want := range map[int]uint32{LockFD: syscall.S_IFREG, ReadyFD: syscall.S_IFIFO} {
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
func run(arg string, ready *os.File, log *slog.Logger) error {
	var cfg Config
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		return fmt.Errorf("parse configuration: %w", err)
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
	layers, err := confine(cfg)
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

func serve(ctx context.Context, cfg Config, l *net.UnixListener, layers []control.Layer, ready *os.File, log *slog.Logger) error {
	var lines control.Log
	var addresses ownAddresses
	if err := addresses.refresh(); err != nil {
		l.Close()
		return err
	}
	g := gateway.New(gateway.Config{Upstream: dns.NewUpstream(cfg.ResolvConf, cfg.Hosts), Log: lines.Add, Own: addresses.has})
	defer g.Close()
	hello := control.Hello{Build: cfg.Build, PID: os.Getpid(), Confinement: layers}
	tell(ready, nil)
	log.Info("the gateway is ready", "pid", hello.PID)
	return control.NewServer(g, &lines, hello, cfg.Grace).Serve(ctx, l)
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
