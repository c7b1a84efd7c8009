package cowfs

import (
	"encoding/binary"
	"fmt"
	"math"

	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// Ino is an inode number. Those below FirstIno are the image's.
type Ino uint64

// FirstIno is the smallest number of an inode that a sandbox made.
const FirstIno Ino = 1 << 40

// OfImage returns whether the inode is the image's.
func (i Ino) OfImage() bool { return i < FirstIno }

// Attr are an inode's attributes, as stat(2) shows them.
type Attr struct {
	Mode         uint32 // type and permissions
	UID, GID     uint32
	Nlink        uint32
	Major, Minor uint32 // of a device
	Size         uint64
	// Blocks is the number of pages of the inode's data that are not the image's.
	Blocks uint64
	// Nanoseconds since 1970.
	Atime, Mtime, Ctime, Btime int64
	// ImageEnd is the offset at which the part of the file that is read from the image
	// ends. It shrinks with truncation and never grows again.
	ImageEnd uint64
}

// Types of files in Attr.Mode, from stat(2).
const (
	TypeMask = 0o170000
	TypeDir  = 0o040000
	TypeReg  = 0o100000
	TypeLink = 0o120000
)

// IsDir returns whether the inode is a directory.
func (a *Attr) IsDir() bool { return a.Mode&TypeMask == TypeDir }

// DirentType returns the type as getdents(2) gives it.
func (a *Attr) DirentType() uint8 { return uint8(a.Mode & TypeMask >> 12) }

const attrSize = 6*4 + 7*8

func (a *Attr) encode(b *[attrSize]byte) {
	le := binary.LittleEndian
	for i, v := range [...]uint32{a.Mode, a.UID, a.GID, a.Nlink, a.Major, a.Minor} {
		le.PutUint32(b[4*i:], v)
	}
	for i, v := range [...]uint64{a.Size, a.Blocks, uint64(a.Atime), uint64(a.Mtime), uint64(a.Ctime), uint64(a.Btime), a.ImageEnd} {
		le.PutUint64(b[24+8*i:], v)
	}
}

// Encode returns the attributes in the form that Decode takes.
func (a *Attr) Encode() []byte {
	var b [attrSize]byte
	a.encode(&b)
	return b[:]
}

// Decode is the inverse of Encode.
func (a *Attr) Decode(b []byte) error {
	if len(b) != attrSize {
		return fmt.Errorf("%w: attributes of %d bytes", pages.ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	for i, v := range [...]*uint32{&a.Mode, &a.UID, &a.GID, &a.Nlink, &a.Major, &a.Minor} {
		*v = le.Uint32(b[4*i:])
	}
	for i, v := range [...]*uint64{&a.Size, &a.Blocks, (*uint64)(nil), nil, nil, nil, &a.ImageEnd} {
		if v != nil {
			*v = le.Uint64(b[24+8*i:])
		}
	}
	for i, v := range [...]*int64{&a.Atime, &a.Mtime, &a.Ctime, &a.Btime} {
		*v = int64(le.Uint64(b[40+8*i:]))
	}
	if a.Size > math.MaxInt64 || a.ImageEnd > math.MaxInt64 {
		return fmt.Errorf("%w: a file of %d bytes", pages.ErrCorrupt, a.Size)
	}
	return nil
}

// imageAttr returns the attributes that an inode has in the image.
func imageAttr(in *erofs.Inode) Attr {
	t := in.MtimeSec*1e9 + int64(in.MtimeNsec)
	a := Attr{
		Mode: in.Mode, UID: in.UID, GID: in.GID, Nlink: in.Nlink, Major: in.Major, Minor: in.Minor, Size: in.Size,
		Atime: t, Mtime: t, Ctime: t, Btime: t,
	}
	if a.Mode&TypeMask == TypeReg {
		a.ImageEnd = in.Size
	}
	return a
}

// The letters of keys, see doc.go.
const (
	keyAttr   = 'a'
	keyEntry  = 'd'
	keyExtent = 'e'
	keyTarget = 'l'
	keyParent = 'r'
	keyXattr  = 'x'
)

// keyRoom is enough for any key: the longest has an extended attribute's name.
const keyRoom = 8 + 1 + 8 + 256 + 8

// key starts a key in buf.
func key(buf *[keyRoom]byte, ino Ino, kind byte) []byte {
	binary.BigEndian.PutUint64(buf[:8], uint64(ino))
	buf[8] = kind
	return buf[:9]
}

// keyOf splits a key into its parts.
func keyOf(k []byte) (ino Ino, kind byte, rest []byte) {
	if len(k) < 9 {
		return 0, 0, nil
	}
	return Ino(binary.BigEndian.Uint64(k)), k[8], k[9:]
}
