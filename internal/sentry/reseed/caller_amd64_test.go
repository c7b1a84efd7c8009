package reseed

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/hostarch"
)

const usual = "lea"

var loaders = map[string]loader{
	usual:                  relative(0x48, 0x8d, 0x15),
	"lea with r15":         relative(0x4c, 0x8d, 0x3d),
	"mov of 32 bits":       absolute(0xba),
	"mov of sign-extended": absolute(0x48, 0xc7, 0xc2),
}

func relative(instruction ...byte) loader {
	return func(at, target hostarch.Addr) []byte {
		return binary.LittleEndian.AppendUint32(instruction[:len(instruction):len(instruction)], uint32(target)-uint32(at)-uint32(len(instruction)+4))
	}
}

func absolute(instruction ...byte) loader {
	return func(_, target hostarch.Addr) []byte {
		return binary.LittleEndian.AppendUint32(instruction[:len(instruction):len(instruction)], uint32(target))
	}
}
