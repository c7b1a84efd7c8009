package erofs

import (
	"fmt"
	"strings"
)

// modeMask are the bits of Node.Mode that the format has.
const modeMask = 0o7777

// EntryError reports an entry that a Tree refuses. The tree is unchanged.
type EntryError struct {
	Path   string
	Reason string
}

// Error implements error.
func (e *EntryError) Error() string { return fmt.Sprintf("entry %q: %s", e.Path, e.Reason) }

// Extent is the place of the contents of a regular file in an image. The zero Extent is that
// of an empty file.
type Extent struct {
	start int64 // byte offset in the image, a multiple of BlockSize
	size  int64
}

// Size returns the length of the contents in bytes.
func (e Extent) Size() int64 { return e.size }

// blocks returns the number of blocks that e occupies.
func (e Extent) blocks() int64 { return (e.size + BlockSize - 1) / BlockSize }

// Node is a file without its name. Its Kind says which fields have a meaning. A Node belongs to
// the tree that it was put in and must not be changed afterwards.
type Node struct {
	Kind Kind
	// Mode holds the permission, set-id and sticky bits (0o7777).
	Mode     uint16
	UID, GID uint32
	// MtimeSec and MtimeNsec are the modification time since 1970.
	MtimeSec  int64
	MtimeNsec uint32
	// Target is the target of a symbolic link.
	Target string
	// Major and Minor are the number of a device.
	Major, Minor uint32
	// Data are the contents of a regular file.
	Data Extent
	// Xattrs are the extended attributes, in any order.
	Xattrs []Xattr

	children map[string]dirent
	cleared  int // layer in which clear last ran here

	// Of the layout, set by Writer.Finish.
	sorted  []namedNode
	parent  *Node
	nlink   uint32
	ino     uint32
	slot    uint64 // the inode number: offset in the metadata area / slotSize
	dirSize uint64
	dirAddr uint32 // first leading block, counted from the first of all directories
	xattrs  []byte // extended attributes as they follow the inode
}

// dirent is a name in a directory. A hard linked file has several.
type dirent struct {
	node  *Node
	layer int
}

type namedNode struct {
	name string
	node *Node
}

// validate returns the reason why n cannot be stored, or "".
func (n *Node) validate() string {
	if n.Mode&^modeMask != 0 {
		return fmt.Sprintf("mode %#o has bits other than permissions", n.Mode)
	}
	if n.MtimeNsec >= 1e9 {
		return "nanoseconds of the modification time are out of range"
	}
	if reason := validateXattrs(n.Xattrs); reason != "" {
		return reason
	}
	switch n.Kind {
	case Symlink:
		if n.Target == "" || len(n.Target) > MaxTargetLen {
			return fmt.Sprintf("target of the symbolic link has %d bytes, allowed are 1 to %d", len(n.Target), MaxTargetLen)
		}
		if strings.IndexByte(n.Target, 0) >= 0 {
			return "target of the symbolic link holds a NUL"
		}
	case CharDevice, BlockDevice:
		// The packed form has room for 12 and 20 bits.
		if n.Major >= 1<<12 || n.Minor >= 1<<20 {
			return "device number is out of range"
		}
	case Regular, Directory, Fifo, Socket:
	default:
		return fmt.Sprintf("unknown kind of file %d", n.Kind)
	}
	return ""
}
