package sentry

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	gotime "time"

	"gvisor.dev/gvisor/pkg/log"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/wire"
)

// The descriptors that a sentry is started with.
const (
	fdLifeline = 3 + iota // SOCK_SEQPACKET pair: Hello out, end of file in
	fdListener            // listening SOCK_SEQPACKET socket
	fdMemory              // empty memfd, the sandbox's memory
	fdFiles               // empty file on disk, for what the sandbox writes
	fdPrepared            // what all sentries have in common, see prepared.go
)

// Config is the sentry's one argument, in JSON.
type Config = wire.SentryConfig

// Main runs a sentry and returns its exit code. args are those behind the
// subcommand. It is the whole of the process.
func Main(args []string) int {
	if len(args) == 1 && args[0] == "prepare" {
		return printPrepared()
	}
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "ramet sentry is started by the daemon only")
		return 2
	}
	fmt.Fprintf(os.Stderr, "sentry: %v\n", run(args[0]))
	return 1
}

// run is a sentry until it fails: one that ends well exits in a call.
func run(arg string) error {
	began := gotime.Now()
	var cfg Config
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		return fmt.Errorf("parse configuration: %w", err)
	}
	limitLog()
	log.SetLevel(log.Warning)
	// The local zone would be read from a file at the first log line, which
	// the filter refuses.
	gotime.Local = gotime.UTC
	// Nothing is worth collecting before there is a sandbox: see settle.
	debug.SetGCPercent(-1)
	lifeline, listener, err := openSockets()
	if err != nil {
		return err
	}
	common, err := readPrepared(os.NewFile(fdPrepared, "prepared"))
	if err != nil {
		return err
	}
	if err := guest.Initialize(common.processor); err != nil {
		return err
	}
	phases := map[string]float64{"packages": since(began)}
	iso, err := confine(cfg)
	if err != nil {
		return err
	}
	phases["confine"] = since(began)
	blank, err := guest.NewBlank(os.NewFile(fdMemory, "memory"), os.NewFile(fdFiles, "files"))
	if err != nil {
		return err
	}
	phases["blank"] = since(began)
	if err := installFilter(common.filter); err != nil {
		return err
	}
	iso.Seccomp, iso.Sentry, iso.Systrap = sandbox.LayerOn, sandbox.LayerOn, sandbox.LayerOn
	phases["filter"] = since(began)
	s := newServer(blank, iso, lifeline, listener)
	hello := wire.Hello{BuildID: cfg.BuildID, PID: os.Getpid(), Isolation: iso, Phases: phases}
	if err := lifeline.SendJSON(wire.TypeReply, hello); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return s.serve()
}

func openSockets() (*wire.Conn, *net.UnixListener, error) {
	f := os.NewFile(fdLifeline, "lifeline")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, nil, fmt.Errorf("open lifeline: %w", err)
	}
	f = os.NewFile(fdListener, "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, nil, fmt.Errorf("open listener: %w", err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false) // the path is the host side's
	return wire.NewConn(c.(*net.UnixConn)), ul, nil
}

func since(t gotime.Time) float64 { return float64(gotime.Since(t).Microseconds()) / 1000 }
