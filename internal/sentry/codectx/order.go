package codectx

import (
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/usermem"
)

// maxWrites bounds what an order keeps. Beyond that it is no longer exact.
const maxWrites = 1 << 16

// order is the order in which the guest writes to several pipes. It cannot be found by
// looking at the pipes one after the other. But a pipe notifies its listeners of a write
// before the write returns, so the bytes in it then came before all that the writer does
// next.
type order struct {
	pipes []*orderedPipe // constant

	mu     sync.Mutex
	writes []written // the writes that were not read yet, the oldest first
	over   bool      // no more come
}

// orderedPipe is one of the pipes. Only one goroutine reads it.
type orderedPipe struct {
	queued func() int   // how many bytes are in it
	taken  atomic.Int64 // how many were read; changes with what is in it
}

// written says that a pipe was written to, and up to where when the next pipe was
// written to. The end of the last write is not known yet.
type written struct {
	pipe int
	end  int64 // counted from when the pipe was first read
}

// note says that a pipe was written to. The writer waits.
func (o *order) note(pipe int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.writes)
	if n > 0 {
		last := &o.writes[n-1]
		if last.pipe == pipe {
			return
		}
		last.end = o.pipes[last.pipe].end()
	}
	if n >= maxWrites {
		for i := n - 1; i >= 0; i-- {
			if w := &o.writes[i]; w.pipe == pipe {
				w.end = o.pipes[pipe].end()
				return
			}
		}
	}
	o.writes = append(o.writes, written{pipe: pipe})
}

// end returns where what is in the pipe ends.
func (p *orderedPipe) end() int64 {
	for {
		taken := p.taken.Load()
		end := taken + int64(p.queued())
		if p.taken.Load() == taken {
			return end
		}
	}
}

// next returns which pipe is to be read now, and how many bytes. That is none if all
// was read.
func (o *order) next() (pipe, most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.writes) > 0 {
		w, p := o.writes[0], o.pipes[o.writes[0].pipe]
		if len(o.writes) == 1 && !o.over {
			w.end = p.end()
		}
		if left := w.end - p.taken.Load(); left > 0 {
			return w.pipe, int(left)
		}
		o.writes = o.writes[1:]
	}
	return 0, 0
}

// stop ends the order: later writes do not count. Nothing is noted any
// more.
func (o *order) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.writes); n > 0 {
		o.writes[n-1].end = o.pipes[o.writes[n-1].pipe].end()
	}
	o.over = true
}

// skip says that there was nothing where next has said: processes of the guest can
// read a pipe, too.
func (o *order) skip() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.writes) > 1 || o.over { // else next will see that
		o.writes = o.writes[1:]
	}
}

// into returns what a read of p is given, to read into buf.
func (p *orderedPipe) into(buf []byte) usermem.IOSequence {
	seq := usermem.BytesIOSequence(buf)
	seq.IO = &taking{usermem.BytesIO{Bytes: buf}, p}
	return seq
}

// taking counts what is read of a pipe, while that is locked.
type taking struct {
	usermem.BytesIO
	from *orderedPipe
}

// CopyOut implements usermem.IO.
func (t *taking) CopyOut(ctx context.Context, addr hostarch.Addr, src []byte, opts usermem.IOOpts) (int, error) {
	n, err := t.BytesIO.CopyOut(ctx, addr, src, opts)
	t.from.taken.Add(int64(n))
	return n, err
}
