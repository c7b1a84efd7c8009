package guestinit

import "encoding/binary"

// label names a place in the program.
type label string

// assembler encodes the few instructions that the program needs, each named
// after its mnemonic and register. Bytes are given as in the Intel manual,
// volume 2. A 32-bit move clears the upper half of its register, so it also
// loads small 64-bit arguments.
type assembler struct {
	code   []byte
	labels map[label]int
	// fixups are the 4-byte distances to labels, each counted from its own end,
	// which in all instructions here is the end of the instruction.
	fixups map[int]label
}

func (a *assembler) movEAX(v uint32)  { a.imm32(v, 0xb8) }                     // B8+rd id: MOV r32, imm32; eax is register 0
func (a *assembler) movEDX(v uint32)  { a.imm32(v, 0xb8+2) }                   // edx is 2
func (a *assembler) movESI(v uint32)  { a.imm32(v, 0xb8+6) }                   // esi is 6
func (a *assembler) movEDI(v uint32)  { a.imm32(v, 0xb8+7) }                   // edi is 7
func (a *assembler) movR10D(v uint32) { a.imm32(v, 0x41, 0xb8+2) }             // REX.B makes register 2 register 10
func (a *assembler) movRDI(v int32)   { a.imm32(uint32(v), 0x48, 0xc7, 0xc7) } // REX.W C7 /0 id: MOV r/m64, sign-extended imm32; ModRM 11 000 111
func (a *assembler) leaRSI(l label)   { a.rel32(l, 0x48, 0x8d, 0x35) }         // REX.W 8D /r: LEA r64, [rip+rel32]; ModRM 00 110 101
func (a *assembler) leaRDI(l label)   { a.rel32(l, 0x48, 0x8d, 0x3d) }         // ModRM 00 111 101
func (a *assembler) testRAX()         { a.emit(0x48, 0x85, 0xc0) }             // REX.W 85 /r: TEST rax, rax; ModRM 11 000 000
func (a *assembler) jg(l label)       { a.rel32(l, 0x0f, 0x8f) }               // 0F 8F cd: JG rel32, signed greater than zero
func (a *assembler) jmp(l label)      { a.rel32(l, 0xe9) }                     // E9 cd: JMP rel32
func (a *assembler) syscall()         { a.emit(0x0f, 0x05) }                   // 0F 05: clobbers rax (the result), rcx and r11

func (a *assembler) quad(v uint64) { a.code = binary.LittleEndian.AppendUint64(a.code, v) }

func (a *assembler) label(l label) {
	if a.labels == nil {
		a.labels = map[label]int{}
	}
	a.labels[l] = len(a.code)
}

// link fills in the distances to labels and returns the code. A label that was
// never placed is a defect of the program.
func (a *assembler) link() []byte {
	for at, l := range a.fixups {
		target, ok := a.labels[l]
		if !ok {
			panic("guestinit: no label " + string(l))
		}
		binary.LittleEndian.PutUint32(a.code[at:], uint32(int32(target-(at+4))))
	}
	return a.code
}

func (a *assembler) emit(opcode ...byte) { a.code = append(a.code, opcode...) }

func (a *assembler) imm32(v uint32, opcode ...byte) {
	a.emit(opcode...)
	a.code = binary.LittleEndian.AppendUint32(a.code, v)
}

func (a *assembler) rel32(l label, opcode ...byte) {
	a.emit(opcode...)
	if a.fixups == nil {
		a.fixups = map[int]label{}
	}
	a.fixups[len(a.code)] = l
	a.emit(0, 0, 0, 0)
}
