package sentry

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/log"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/platforms"
	"ramet.dev/ramet/internal/sentry/selffork"
)

// Main runs the zygote, or in a fork of it a sentry, and returns its exit code. args
// are those behind the subcommand. It is the whole of the process.
func Main(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "ramet sentry is started by the daemon only")
		return 2
	}
	if args[0] == wire.ProbeRoot {
		if err := emptyRoot(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	fmt.Fprintln(os.Stderr, lastWord, run(args[0]))
	return 1
}

// lastWord begins the log line that says why a process ends itself.
const lastWord = "sentry:"

// run is the zygote, and the sentries that are forks of it, until it fails: a process that
// ends well exits in a call.
func run(arg string) error {
	var cfg wire.ZygoteConfig
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		return fmt.Errorf("parse configuration: %w", err)
	}
	limitLog()
	log.SetLevel(log.Warning)
	// The local zone would be read from a file at the first log line, which
	// the filter refuses.
	time.Local = time.UTC
	if err := guest.Initialize(platforms.Systrap); err != nil {
		return err
	}
	if err := learn(); err != nil {
		return err
	}
	filters, err := compileFilters(platforms.Systrap)
	if err != nil {
		return err
	}
	if err := selffork.KeepText(); err != nil {
		return err
	}
	z, err := newZygote(cfg, platforms.Systrap)
	if err != nil {
		return err
	}
	z.filter = filters.template
	var born *outfit
	blank, err := guest.NewBlank(z.kind, func() guest.Born {
		born = z.serve()
		return guest.Born{Memory: born.memory, Files: born.files, Template: z.template}
	})
	if err != nil {
		return err
	}
	blank.Forker = z.forker
	lifeline, listener, err := born.sockets()
	if err != nil {
		return err
	}
	if err := installFilter(filters.sentry); err != nil {
		return err
	}
	iso := z.isolation
	iso.Seccomp, iso.Sentry, iso.Systrap = api.LayerOn, api.LayerOn, api.LayerOn
	s := newServer(blank, iso, lifeline, listener)
	hello := wire.Hello{BuildID: cfg.BuildID, PID: os.Getpid(), Isolation: iso}
	if err := lifeline.SendJSON(wire.TypeReply, hello); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return s.serve()
}
