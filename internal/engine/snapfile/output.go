package snapfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Output is the kept output of a process. It is not part of State,
// because its memory never changes and so need not be copied while the sandbox
// stands still.
type Output struct {
	// PID is the process id in the sandbox.
	PID int32
	// Next is the sequence number of the next byte: how many bytes were written.
	Next   int64
	Blocks []OutputBlock
}

// OutputBlock is a stretch of output without gaps.
type OutputBlock struct {
	Start int64
	Data  []byte
	// Marks say where chunks begin, the first of them at Start.
	Marks []Mark
}

// Mark begins a chunk: bytes that were written to one stream at one time.
type Mark struct {
	Seq    int64
	Time   int64 // nanoseconds since 1970
	Stream byte  // 1 or 2
}

func appendOutputs(b []byte, outs []Output) []byte {
	for _, o := range outs {
		b = binary.AppendUvarint(b, uint64(o.PID))
		b = binary.AppendUvarint(b, uint64(o.Next))
		b = binary.AppendUvarint(b, uint64(len(o.Blocks)))
		for _, bl := range o.Blocks {
			b = binary.AppendUvarint(b, uint64(bl.Start))
			b = binary.AppendUvarint(b, uint64(len(bl.Data)))
			b = binary.AppendUvarint(b, uint64(len(bl.Marks)))
			for _, m := range bl.Marks {
				b = binary.AppendUvarint(b, uint64(m.Seq-bl.Start))
				b = binary.AppendVarint(b, m.Time)
				b = append(b, m.Stream)
			}
			b = append(b, bl.Data...)
		}
	}
	return b
}

var errOutput = errors.New("output is cut off or makes no sense")

// outputParser takes numbers off the front of a section. After an error it only
// gives zeros.
type outputParser struct {
	b   []byte
	err error
}

// number returns a number of at most most.
func (p *outputParser) number(most int64) int64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 || v > uint64(most) {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return int64(v)
}

func (p *outputParser) signed() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail()
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *outputParser) bytes(n int64) []byte {
	if n > int64(len(p.b)) {
		p.fail()
		return nil
	}
	out := p.b[:n:n]
	p.b = p.b[n:]
	return out
}

func (p *outputParser) fail() { p.b, p.err = nil, errOutput }

// parseOutputs returns outputs whose data point into b.
func parseOutputs(b []byte) ([]Output, error) {
	p := &outputParser{b: b}
	var outs []Output
	for len(p.b) > 0 && p.err == nil {
		o := Output{PID: int32(p.number(1<<31 - 1)), Next: p.number(maxOffset)}
		blocks := p.number(int64(len(p.b))) // each takes more than a byte
		at := int64(-1)
		for range blocks {
			bl := p.block(o.Next)
			if p.err == nil && at >= 0 && bl.Start != at {
				p.fail()
			}
			if p.err != nil {
				break
			}
			at = bl.Start + int64(len(bl.Data))
			o.Blocks = append(o.Blocks, bl)
		}
		if p.err == nil && at >= 0 && at != o.Next {
			p.fail()
		}
		outs = append(outs, o)
	}
	if p.err != nil {
		return nil, fmt.Errorf("outputs: %w", p.err)
	}
	return outs, nil
}

// block takes one block that must end at end or before.
func (p *outputParser) block(end int64) OutputBlock {
	bl := OutputBlock{Start: p.number(end)}
	length := p.number(end - bl.Start)
	marks := p.number(min(length, int64(len(p.b))))
	if marks == 0 { // then there are no data
		p.fail()
	}
	for i := range marks {
		m := Mark{Seq: bl.Start + p.number(length), Time: p.signed()}
		if s := p.bytes(1); p.err == nil {
			m.Stream = s[0]
		}
		first := i == 0
		if p.err == nil && (m.Stream != 1 && m.Stream != 2 || m.Seq >= bl.Start+length || first && m.Seq != bl.Start || !first && m.Seq <= bl.Marks[i-1].Seq) {
			p.fail()
		}
		if p.err != nil {
			return bl
		}
		bl.Marks = append(bl.Marks, m)
	}
	bl.Data = p.bytes(length)
	return bl
}
