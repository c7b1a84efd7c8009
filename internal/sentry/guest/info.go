package guest

import (
	"os"
	"slices"

	"ramet.dev/ramet/internal/engine/wire"
)

// Info describes the sandbox. The caller adds figures of the process.
func (g *Guest) Info() (*wire.Info, error) {
	g.Gate.Enter()
	defer g.Gate.Leave()
	own, err := g.mem.MemoryFile().TotalUsage()
	if err != nil {
		return nil, err
	}
	state := "running"
	if g.Gate.Paused() {
		state = "paused"
	}
	return &wire.Info{
		ID:          g.id().ID,
		State:       state,
		OwnBytes:    int64(own),
		SharedBytes: g.mem.SharedBytes(),
		DiskBytes:   g.disk.used(),
		Processes:   len(g.k.RootPIDNamespace().ThreadGroups()),
		Generations: g.mem.Generations(),
	}, nil
}

// Descriptors returns the sandbox's memory file, its file of pages of files and those of
// its generations.
func (g *Guest) Descriptors() (memory, files *os.File, generations []*os.File) {
	memory, generations = g.mem.Files()
	return memory, g.disk.own, generations
}

// Pins returns the names of the freezes whose memory is pinned.
func (g *Guest) Pins() []string {
	g.Gate.Enter()
	defer g.Gate.Leave()
	return g.pins()
}

func (g *Guest) pins() []string {
	names := append(g.mem.PinNames(), g.disk.pins()...)
	slices.Sort(names)
	return slices.Compact(names)
}
