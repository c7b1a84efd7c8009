package guest

import (
	"encoding/binary"
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/fdnotifier"
	"gvisor.dev/gvisor/pkg/rand"
	"gvisor.dev/gvisor/pkg/sentry/platform"

	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/dormant"
	"ramet.dev/ramet/internal/sentry/platforms"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/stages"
)

// Template is a frozen sandbox that was loaded in a process without a platform, for forks of the process to go
// on with, each as another sandbox. What they have in common they need not load, nor have in memory of their
// own. It never runs itself.
type Template struct {
	blank *Blank
	pages cow.Ranges // of its memory file, which each fork copies
}

// ReadyTemplate returns a template that has loaded nothing yet, but has made all that polls descriptors: a
// selffork.Forker has to find that.
func ReadyTemplate(kind platforms.Platform, memory, files *os.File) (*Template, error) {
	fdnotifier.Pause() // it is made by that
	fdnotifier.Resume()
	mem, err := newMemory(memory)
	if err != nil {
		return nil, err
	}
	return &Template{blank: newBlank(dormant.NewIdlePlatform(kind.Constants()), mem, files)}, nil
}

// Load loads the sandbox. files are as of Blank.Load, but without a channel.
func (t *Template) Load(req *wire.Decode, files LoadFiles) (err error) {
	unsettled(req.Limits.MemoryMiB)
	st := stages.Begin()
	if t.blank.inherited, err = t.blank.decode(req, files, &st); err != nil {
		return err
	}
	// The clock writes to memory, and calls what is due.
	t.blank.inherited.guest.k.Timekeeper().Pause()
	t.pages, err = t.blank.mem.ToFork()
	return err
}

// bear makes a fork of the template one with memory and files of its own, and processes.
func (t *Template) bear(own Born, processes platform.Platform) (*Blank, error) {
	b := t.blank
	defer own.Memory.Close()
	defer own.Files.Close()
	if err := b.mem.MoveTo(own.Memory, t.pages); err != nil {
		return nil, err
	}
	if err := rootfs.Tree(b.inherited.guest.disk.fs).Store().MoveTo(int(own.Files.Fd())); err != nil {
		return nil, err
	}
	b.hosted.Begin(processes)
	k := b.inherited.guest.k
	for _, s := range append(b.inherited.network.spaces.Stacks(), k.NetStack()) {
		var seed [8]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
		s.InsecureRNG().Seed(int64(binary.LittleEndian.Uint64(seed[:]))) // it was seeded when it was loaded
	}
	k.Timekeeper().Resume(clockPage(k.Kernel))
	return b, nil
}
