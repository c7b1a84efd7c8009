package node

import (
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/branching"
	"ramet.dev/ramet/internal/node/images"
	"ramet.dev/ramet/internal/node/portable"
	"ramet.dev/ramet/internal/node/snapshots"
)

// newPorter returns what packs and unpacks snapshots.
func (m *Node) newPorter() *portable.Porter {
	return portable.New(portable.Config{
		Paths: m.cfg.Paths, Snapshots: snapshots.Arrivals{Set: m.snapshots}, Freezes: m.freezes, MemFiles: m.memFiles, Images: images.Carrier{Catalog: m.images}, Networks: m.networks, Admission: m.admission,
		Limits:  func(l api.Limits) error { return branching.ValidLimits(l, m.cfg.HostMemory, m.cfg.Paths.Files()) },
		Spool:   func() (*os.File, error) { return launch.NewPageFile(m.cfg.Paths.Files()) },
		Engines: m.engines, Trust: m.cfg.Trust, Turn: m.heavyTurn, Observe: m.meter.Observe, Log: m.cfg.Log,
	})
}
