package guestinit

import "encoding/binary"

// label names a place in the program.
type label string

// assembler encodes the few instructions that the program needs. Encodings are given as in the Arm
// Architecture Reference Manual, chapter C6.2. Each instruction is one word of four bytes, and registers are
// named by their number.
type assembler struct {
	code   []byte
	labels map[label]int
	fixups map[int]fixup // by the place of their word
}

// fixup is a word that gets the distance to a label.
type fixup struct {
	to label
	// field returns the bits that hold the distance, which counts from the word itself.
	field func(distance int) uint32
}

// mov loads a constant of 32 bits: MOVZ Xd, #imm16, and MOVK Xd, #imm16, LSL #16 if the upper half is not 0.
func (a *assembler) mov(register, v uint32) {
	a.word(0xd2800000 | v&0xffff<<5 | register)
	if v>>16 != 0 {
		a.word(0xf2a00000 | v>>16<<5 | register)
	}
}

// movMinusOne is MOVN Xd, #0.
func (a *assembler) movMinusOne(register uint32) { a.word(0x92800000 | register) }

// adr is ADR Xd, label: immlo in bits 30:29, immhi in bits 23:5.
func (a *assembler) adr(register uint32, to label) {
	a.fix(0x10000000|register, fixup{to, func(d int) uint32 { return uint32(d)&3<<29 | uint32(d)>>2&0x7ffff<<5 }})
}

// bgt is CMP X0, #0 and B.GT label: imm19 in bits 23:5, condition GT is 12.
func (a *assembler) bgt(to label) {
	a.word(0xf100001f)
	a.fix(0x5400000c, fixup{to, func(d int) uint32 { return uint32(d) >> 2 & 0x7ffff << 5 }})
}

// b is B label: imm26 in bits 25:0.
func (a *assembler) b(to label) {
	a.fix(0x14000000, fixup{to, func(d int) uint32 { return uint32(d) >> 2 & 0x3ffffff }})
}

// svc calls the kernel: MOVZ X8, #number, and SVC #0. The result is in X0, other registers keep their values.
func (a *assembler) svc(number uint32) {
	a.mov(8, number)
	a.word(0xd4000001)
}

func (a *assembler) quad(v uint64) { a.code = binary.LittleEndian.AppendUint64(a.code, v) }

// align fills up with words of zeros.
func (a *assembler) align(to int) {
	for len(a.code)%to != 0 {
		a.word(0)
	}
}

func (a *assembler) label(l label) {
	if a.labels == nil {
		a.labels = map[label]int{}
	}
	a.labels[l] = len(a.code)
}

// link fills in the distances to labels and returns the code. A label that was
// never placed is a defect of the program.
func (a *assembler) link() []byte {
	for at, f := range a.fixups {
		target, ok := a.labels[f.to]
		if !ok {
			panic("guestinit: no label " + string(f.to))
		}
		word := binary.LittleEndian.Uint32(a.code[at:])
		binary.LittleEndian.PutUint32(a.code[at:], word|f.field(target-at))
	}
	return a.code
}

func (a *assembler) word(w uint32) { a.code = binary.LittleEndian.AppendUint32(a.code, w) }

func (a *assembler) fix(w uint32, f fixup) {
	if a.fixups == nil {
		a.fixups = map[int]fixup{}
	}
	a.fixups[len(a.code)] = f
	a.word(w)
}
