package erofs

import (
	"encoding/binary"
	"hash/crc32"
)

// The on-disk format, from the kernel's description of EROFS
// (docs.kernel.org/filesystems/erofs.html) and its erofs_fs.h.
const (
	// BlockSize is the size of a block in bytes. It equals the page size, so
	// that every file can be mapped straight from the image.
	BlockSize = 1 << blockBits
	blockBits = 12

	superblockOffset = 1024
	superblockSize   = 128
	superblockMagic  = 0xe0f5e1e2

	// MaxNameLen is the length limit of a file name in bytes.
	MaxNameLen = 255
	// MaxTargetLen is the length limit of a symbolic link's target in bytes:
	// a path with its terminating NUL must fit in a page.
	MaxTargetLen = 4095

	inodeSize  = 64 // extended form, the only one with 32-bit ids and an mtime
	slotSize   = 32 // inode numbers count slots of the metadata area
	direntSize = 12

	// rootSlot leaves the first slots of the metadata area unused, so that no file has
	// inode number 0, which callers of readdir take for a deleted entry.
	rootSlot = inodeSize / slotSize

	featureChecksum = 0x1
	featureMtime    = 0x2 // inode times are modification times

	layoutExtended = 1
	dataPlain      = 0
	dataInline     = 2

	// maxBlocks bounds the 32-bit block addresses.
	maxBlocks = 1<<32 - 1
)

// Kind is the type of a file. Its values are those of EROFS directory entries.
type Kind uint8

// The kinds of file.
const (
	Regular     Kind = 1
	Directory   Kind = 2
	CharDevice  Kind = 3
	BlockDevice Kind = 4
	Fifo        Kind = 5
	Socket      Kind = 6
	Symlink     Kind = 7

	// linkPending is a hard link whose target has not arrived yet. It never
	// reaches an image.
	linkPending Kind = 0
)

// typeBits returns the file type bits of an inode's mode (S_IFMT).
func (k Kind) typeBits() uint16 {
	return [...]uint16{
		Regular:     0o100000,
		Directory:   0o040000,
		CharDevice:  0o020000,
		BlockDevice: 0o060000,
		Fifo:        0o010000,
		Socket:      0o140000,
		Symlink:     0o120000,
	}[k]
}

type superblock struct {
	rootNid  uint16
	inodes   uint64
	blocks   uint32
	metaAddr uint32
	uuid     [16]byte
}

// encode returns block 0 of an image.
func (s superblock) encode() []byte {
	le := binary.LittleEndian
	block := make([]byte, BlockSize)
	b := block[superblockOffset:]
	le.PutUint32(b[0:], superblockMagic)
	le.PutUint32(b[8:], featureChecksum|featureMtime)
	b[12] = blockBits
	le.PutUint16(b[14:], s.rootNid)
	le.PutUint64(b[16:], s.inodes)
	// The build time at 24 stays 0: it would make equal trees differ, and
	// extended inodes carry their own times.
	le.PutUint32(b[36:], s.blocks)
	le.PutUint32(b[40:], s.metaAddr)
	copy(b[48:64], s.uuid[:])
	le.PutUint32(b[4:], superblockChecksum(b))
	return block
}

// superblockChecksum returns the CRC32C of the block from the superblock on, with the
// checksum field 0 and without the usual final inversion.
func superblockChecksum(b []byte) uint32 {
	return ^crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

// putInode encodes n, whose data has the given layout and whose address field
// (block address or device number) is addr.
func putInode(b []byte, n *Node, dataLayout uint16, size uint64, addr uint32) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], layoutExtended|dataLayout<<1)
	le.PutUint16(b[2:], xattrCount(len(n.xattrs)))
	le.PutUint16(b[4:], n.Kind.typeBits()|n.Mode)
	le.PutUint64(b[8:], size)
	le.PutUint32(b[16:], addr)
	le.PutUint32(b[20:], n.ino)
	le.PutUint32(b[24:], n.UID)
	le.PutUint32(b[28:], n.GID)
	le.PutUint64(b[32:], uint64(n.MtimeSec))
	le.PutUint32(b[40:], n.MtimeNsec)
	le.PutUint32(b[44:], n.nlink)
}

func putDirent(b []byte, nid uint64, nameOff int, k Kind) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], nid)
	le.PutUint16(b[8:], uint16(nameOff))
	b[10] = uint8(k)
}

// deviceNumber packs a device number as Linux's new_encode_dev does.
func deviceNumber(major, minor uint32) uint32 {
	return minor&0xff | major<<8 | minor&^0xff<<12
}
