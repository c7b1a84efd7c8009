package guestinit

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

const (
	// loadAddress is where linkers put programs that are not relocatable.
	loadAddress = 0x400000
	pageSize    = 0x1000
	headerSize  = 64 // sizeof(Elf64_Ehdr)
	segmentSize = 56 // sizeof(Elf64_Phdr)
)

// ELF returns the program as a static executable: a file header, one segment
// that covers the whole file, read and execute, and the code. It is the same in
// every build.
func ELF() []byte {
	code := program()
	size := uint64(headerSize + segmentSize + len(code))
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{
			0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT), byte(elf.ELFOSABI_NONE),
		},
		Type:      uint16(elf.ET_EXEC),
		Machine:   uint16(machine),
		Version:   uint32(elf.EV_CURRENT),
		Entry:     loadAddress + headerSize + segmentSize,
		Phoff:     headerSize,
		Ehsize:    headerSize,
		Phentsize: segmentSize,
		Phnum:     1,
	}
	segment := elf.Prog64{
		Type:   uint32(elf.PT_LOAD),
		Flags:  uint32(elf.PF_R | elf.PF_X),
		Vaddr:  loadAddress,
		Paddr:  loadAddress,
		Filesz: size,
		Memsz:  size,
		Align:  pageSize,
	}
	var b bytes.Buffer
	for _, part := range []any{header, segment, code} {
		// Only a failing writer or a type without a fixed size makes Write fail.
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic("guestinit: " + err.Error())
		}
	}
	return b.Bytes()
}
