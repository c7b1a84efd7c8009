package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

var (
	// ErrCorrupt is wrapped by errors about an image that contradicts itself or the
	// format.
	ErrCorrupt = errors.New("image is corrupt")
	// ErrUnsupported is wrapped by errors about parts of the format that a Reader does not
	// know, since no Writer makes them.
	ErrUnsupported = errors.New("image is not supported")
)

// Reader reads an image in memory, usually a mapped file. It trusts nothing in it: every
// offset is checked before use, and the work of a call is bounded by the size of the directory
// that it looks at. It does not check that directories are a tree: in a hostile image they may
// contain themselves, or each other under many names, so a caller that walks an image bounds
// depth and number.
//
// A Reader has no state besides the image and is safe for concurrent use. The image must stay
// unchanged and mapped as long as the Reader is used. The results of its methods do not refer
// to the image, except values of extended attributes.
type Reader struct {
	data []byte // the blocks of the image, without what may follow them
	meta uint64 // offset of the metadata area
	root uint64
	// Compact inodes, which a Writer does not make, have these times.
	buildSec  int64
	buildNsec uint32
}

// Inode is a file of an image. It comes from Reader.Inode.
type Inode struct {
	Nid       uint64
	Mode      uint32 // file type (S_IFMT) and permissions
	UID, GID  uint32
	Nlink     uint32
	Size      uint64 // in bytes; 0 unless a regular file, directory or symbolic link
	MtimeSec  int64
	MtimeNsec uint32
	// Major and Minor are the number of a device.
	Major, Minor uint32

	lead uint64 // offset of the data, or of their whole blocks if there is a tail
	tail uint64 // offset of the last, partial block behind the inode; 0 if there is none

	xattrs, xattrSize uint64 // offset and length of the extended attributes
}

// NewReader returns a Reader of the image in data. It verifies the superblock; all other parts
// are checked when they are read.
func NewReader(data []byte) (*Reader, error) {
	if len(data) < BlockSize {
		return nil, corrupt("it has %d bytes", len(data))
	}
	sb := bytes.Clone(data[superblockOffset:BlockSize])
	le := binary.LittleEndian
	sum := le.Uint32(sb[4:])
	clear(sb[4:8])
	switch {
	case le.Uint32(sb) != superblockMagic:
		return nil, corrupt("its magic number is %#x", le.Uint32(sb))
	case sb[12] != blockBits:
		return nil, unsupported("its blocks have 2^%d bytes", sb[12])
	case le.Uint32(sb[8:])&featureChecksum == 0:
		return nil, unsupported("its superblock has no checksum")
	case sum != superblockChecksum(sb):
		return nil, corrupt("its superblock has checksum %#x, expected is %#x", sum, superblockChecksum(sb))
	}
	if name := foreignFeature(sb); name != "" {
		return nil, unsupported("it uses %s", name)
	}
	size := uint64(le.Uint32(sb[36:])) * BlockSize
	r := &Reader{
		meta:      uint64(le.Uint32(sb[40:])) * BlockSize,
		root:      uint64(le.Uint16(sb[14:])),
		buildSec:  int64(le.Uint64(sb[24:])),
		buildNsec: le.Uint32(sb[32:]),
	}
	if size > uint64(len(data)) || r.meta >= size {
		return nil, corrupt("it has %d bytes, the superblock says %d with metadata at %d", len(data), size, r.meta)
	}
	r.data = data[:size:size]
	root, err := r.Inode(r.root)
	if err != nil {
		return nil, fmt.Errorf("read root directory: %w", err)
	}
	if root.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil, corrupt("the root is not a directory")
	}
	return r, nil
}

// foreignFeature returns the name of a feature of the image with superblock sb that a Reader
// does not know, or "". If the format gave a bit several meanings, the name is that of the
// first.
func foreignFeature(sb []byte) string {
	compatible := binary.LittleEndian.Uint32(sb[8:]) &^ (featureChecksum | featureMtime)
	incompatible := binary.LittleEndian.Uint32(sb[80:])
	switch {
	case incompatible != 0:
		return featureName(incompatible, "incompatible", "zero_padding", "compr_cfgs", "chunked_file", "device_table",
			"ztailpacking", "fragments", "xattr_prefixes", "48bit", "metabox")
	case compatible != 0:
		return featureName(compatible, "compatible", "sb_chksum", "mtime", "xattr_filter", "shared_ea_in_metabox",
			"plain_xattr_pfx", "ishare_xattrs")
	case sb[13] != 0:
		return "an extended superblock"
	case binary.LittleEndian.Uint16(sb[86:]) != 0:
		return "extra devices"
	case sb[90] != 0:
		return "directory blocks of another size"
	}
	return ""
}

// featureName names the bits that are set. names are those of the lowest bits.
func featureName(bits uint32, kind string, names ...string) string {
	var found []string
	for i := range 32 {
		switch {
		case bits&(1<<i) == 0:
		case i < len(names):
			found = append(found, names[i])
		default:
			found = append(found, fmt.Sprintf("number %d", i))
		}
	}
	return kind + " feature " + strings.Join(found, ", ")
}

// Root returns the inode number of the root directory.
func (r *Reader) Root() uint64 { return r.root }

// Inode returns the inode with number nid.
func (r *Reader) Inode(nid uint64) (Inode, error) {
	slots := (uint64(len(r.data)) - r.meta) / slotSize
	if nid >= slots {
		return Inode{}, corrupt("inode %d: there is room for %d", nid, slots)
	}
	off := r.meta + nid*slotSize
	le := binary.LittleEndian
	b := r.data[off : off+slotSize]
	format := le.Uint16(b)
	i := Inode{Nid: nid, Mode: uint32(le.Uint16(b[4:]))}
	addr := le.Uint32(b[16:])
	end := off + slotSize
	if format&1 == layoutExtended {
		if end = off + inodeSize; end > uint64(len(r.data)) {
			return Inode{}, corrupt("inode %d: it is cut off", nid)
		}
		b = r.data[off:end]
		i.Size = le.Uint64(b[8:])
		i.UID, i.GID, i.Nlink = le.Uint32(b[24:]), le.Uint32(b[28:]), le.Uint32(b[44:])
		i.MtimeSec, i.MtimeNsec = int64(le.Uint64(b[32:])), le.Uint32(b[40:])
	} else {
		i.Size = uint64(le.Uint32(b[8:]))
		i.UID, i.GID, i.Nlink = uint32(le.Uint16(b[24:])), uint32(le.Uint16(b[26:])), uint32(le.Uint16(b[6:]))
		i.MtimeSec, i.MtimeNsec = r.buildSec, r.buildNsec
	}
	switch {
	case format>>4 != 0:
		return Inode{}, unsupported("inode %d: its format is %#x", nid, format)
	case i.MtimeNsec >= 1e9 || i.Nlink == 0:
		return Inode{}, corrupt("inode %d: %d ns in its time, %d links", nid, i.MtimeNsec, i.Nlink)
	}
	if count := uint64(le.Uint16(b[2:])); count > 0 {
		i.xattrs, i.xattrSize = end, xattrHeaderSize+xattrAlign*(count-1)
		if end += i.xattrSize; end > uint64(len(r.data)) {
			return Inode{}, corrupt("inode %d: its extended attributes are cut off", nid)
		}
	}
	if err := r.place(&i, format>>1, addr, end); err != nil {
		return Inode{}, err
	}
	return i, nil
}

// place sets the fields of i that depend on its type. addr is its address field, end the offset
// behind it and its extended attributes.
func (r *Reader) place(i *Inode, layout uint16, addr uint32, end uint64) error {
	switch i.Mode & syscall.S_IFMT {
	case syscall.S_IFREG, syscall.S_IFDIR:
	case syscall.S_IFLNK:
		if i.Size == 0 || i.Size > MaxTargetLen {
			return corrupt("inode %d: a symbolic link of %d bytes", i.Nid, i.Size)
		}
	case syscall.S_IFCHR, syscall.S_IFBLK, syscall.S_IFIFO, syscall.S_IFSOCK:
		if i.Size != 0 {
			return corrupt("inode %d: a special file of %d bytes", i.Nid, i.Size)
		}
		if kind := i.Mode & syscall.S_IFMT; kind == syscall.S_IFCHR || kind == syscall.S_IFBLK {
			i.Major, i.Minor = addr>>8&0xfff, addr&0xff|addr>>12&0xfff00
		}
		return nil
	default:
		return corrupt("inode %d: its mode is %#o", i.Nid, i.Mode)
	}
	tail := uint64(0)
	switch layout {
	case dataPlain:
	case dataInline:
		tail = i.Size % BlockSize
		if i.tail = end; tail == 0 || end%BlockSize+tail > BlockSize || !r.holds(end, tail) {
			return corrupt("inode %d: %d bytes do not fit behind it", i.Nid, tail)
		}
	default:
		return unsupported("inode %d: its data are compressed or in chunks (layout %d)", i.Nid, layout)
	}
	if lead := i.Size - tail; lead > 0 {
		if i.lead = uint64(addr) * BlockSize; i.lead == 0 || !r.holds(i.lead, lead) {
			return corrupt("inode %d: %d bytes at %d", i.Nid, lead, i.lead)
		}
	}
	return nil
}

// DataOffset returns the offset of the contents of regular file i in the image. They are
// contiguous, begin at a block boundary and are padded to one within the image, so they can be
// mapped. An empty file has offset 0. For other files the error is EINVAL.
func (r *Reader) DataOffset(i *Inode) (uint64, error) {
	switch {
	case i.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return 0, syscall.EINVAL
	case i.tail != 0:
		return 0, unsupported("inode %d: its contents are behind the inode", i.Nid)
	case !r.holds(i.lead, i.Size):
		return 0, corrupt("inode %d: %d bytes at %d", i.Nid, i.Size, i.lead)
	}
	return i.lead, nil
}

// Readlink returns the target of symbolic link i. For other files the error is
// EINVAL.
func (r *Reader) Readlink(i *Inode) (string, error) {
	if i.Mode&syscall.S_IFMT != syscall.S_IFLNK {
		return "", syscall.EINVAL
	}
	off := i.lead
	if i.tail != 0 {
		off = i.tail
	}
	if !r.holds(off, i.Size) {
		return "", corrupt("inode %d: %d bytes at %d", i.Nid, i.Size, off)
	}
	target := string(r.data[off : off+i.Size])
	if strings.IndexByte(target, 0) >= 0 {
		return "", corrupt("inode %d: the target %q holds a NUL", i.Nid, target)
	}
	return target, nil
}

// holds returns whether the image has size bytes at off.
func (r *Reader) holds(off, size uint64) bool {
	return off <= uint64(len(r.data)) && size <= uint64(len(r.data))-off
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}
