package image

import (
	"time"

	"ramet.dev/ramet/api"
)

// The phases of an import, as Progress.Phase shows them.
const (
	PhaseFetch  = "fetch"  // layers from a registry; Done and Total in compressed bytes
	PhaseUnpack = "unpack" // archives and directories; Done and Total in bytes of input, Total 0 if unknown
	PhasePack   = "pack"   // files of a sandbox; Done in bytes of their contents, Total 0
	PhaseSeal   = "seal"   // hashing and syncing the image; bytes of the image
)

// reportEvery keeps callbacks rare enough to be sent over a network.
const reportEvery = 100 * time.Millisecond

// progress calls back from the goroutine that imports.
type progress struct {
	call func(api.Progress)
	now  api.Progress
	last time.Time
}

// begin starts a phase and reports it.
func (p *progress) begin(phase string, total int64) {
	p.now = api.Progress{Phase: phase, Total: total}
	p.send()
}

// detail sets the text about the current work.
func (p *progress) detail(s string) { p.now.Detail = s }

// add counts n more bytes.
func (p *progress) add(n int64) {
	p.now.Done += n
	if time.Since(p.last) >= reportEvery {
		p.send()
	}
}

// end reports the last state of a phase.
func (p *progress) end() { p.send() }

func (p *progress) send() {
	p.last = time.Now()
	if p.call != nil {
		p.call(p.now)
	}
}
