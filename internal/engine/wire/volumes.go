package wire

// VolumeOp names an operation on a volume. All but "open" and "usage" are those of system calls.
type VolumeOp string

// The operations.
const (
	VolumeLookup   VolumeOp = "lookup"   // Ino, Name: Attr
	VolumeStat     VolumeOp = "stat"     // Ino: Attr
	VolumeSetAttr  VolumeOp = "setattr"  // Ino, Set: Attr
	VolumeMake     VolumeOp = "make"     // Ino, Name, Node: Attr
	VolumeLink     VolumeOp = "link"     // Ino, To, NewName: Attr
	VolumeUnlink   VolumeOp = "unlink"   // Ino, Name, Hold
	VolumeForget   VolumeOp = "forget"   // Ino: it was held, and is not needed any more
	VolumeRmdir    VolumeOp = "rmdir"    // Ino, Name
	VolumeRename   VolumeOp = "rename"   // Ino, Name, To, NewName, Keep, Hold
	VolumeList     VolumeOp = "list"     // Ino, Name (the last one that is known): Entries
	VolumeReadlink VolumeOp = "readlink" // Ino: Value
	VolumeOpen     VolumeOp = "open"     // Ino, Append: the descriptor of the contents
	VolumeGrow     VolumeOp = "grow"     // Ino, Size: the contents may reach so far
	VolumeGetX     VolumeOp = "getxattr" // Ino, Name: Value
	VolumeSetX     VolumeOp = "setxattr" // Ino, Name, Value, Flags
	VolumeListX    VolumeOp = "listxattr"
	VolumeRemoveX  VolumeOp = "removexattr"
	VolumeUsage    VolumeOp = "usage" // Usage
)

// Repeatable reports whether an operation that may have been done can be done again with the
// same answer.
func (o VolumeOp) Repeatable() bool {
	switch o {
	case VolumeMake, VolumeLink, VolumeUnlink, VolumeRmdir, VolumeRename, VolumeSetX, VolumeRemoveX:
		return false
	}
	return true
}

// VolumeCall asks the daemon for an operation on a volume: it is the body of a TypeRequest packet
// of OpVolumes. Which fields an operation uses is said at its name. Names are any bytes.
type VolumeCall struct {
	Volume  string      `json:"volume"`
	Op      VolumeOp    `json:"op"`
	Ino     uint64      `json:"ino,omitempty"`
	Name    []byte      `json:"name,omitempty"`
	To      uint64      `json:"to,omitempty"`
	NewName []byte      `json:"new_name,omitempty"`
	Keep    bool        `json:"keep,omitempty"` // what has the new name
	Hold    bool        `json:"hold,omitempty"` // the file that loses its name is open here
	Append  bool        `json:"append,omitempty"`
	Size    int64       `json:"size,omitempty"`
	Value   []byte      `json:"value,omitempty"`
	Flags   uint32      `json:"flags,omitempty"`
	Node    *VolumeNode `json:"node,omitempty"`
	Set     *VolumeSet  `json:"set,omitempty"`
}

// VolumeNode is a file to be made.
type VolumeNode struct {
	Mode   uint32 `json:"mode"` // with the type
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`
	Rdev   uint64 `json:"rdev,omitempty"`
	Target []byte `json:"target,omitempty"`
}

// VolumeSet has attributes to change. Times are nanoseconds since 1970.
type VolumeSet struct {
	Mode  *uint32 `json:"mode,omitempty"`
	UID   *uint32 `json:"uid,omitempty"`
	GID   *uint32 `json:"gid,omitempty"`
	Size  *int64  `json:"size,omitempty"`
	Atime *int64  `json:"atime,omitempty"`
	Mtime *int64  `json:"mtime,omitempty"`
}

// VolumeAttr has the attributes of a file.
type VolumeAttr struct {
	Ino    uint64 `json:"ino"`
	Mode   uint32 `json:"mode"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Nlink  uint32 `json:"nlink"`
	Rdev   uint64 `json:"rdev,omitempty"`
	Size   int64  `json:"size"`
	Blocks int64  `json:"blocks"`
	Atime  int64  `json:"atime"`
	Mtime  int64  `json:"mtime"`
	Ctime  int64  `json:"ctime"`
}

// VolumeEntry is a name in a directory.
type VolumeEntry struct {
	Name []byte `json:"name"`
	Ino  uint64 `json:"ino"`
	Mode uint32 `json:"mode"`
}

// VolumeSpace is what a volume holds and may hold, in bytes.
type VolumeSpace struct {
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	Nodes int64 `json:"nodes"`
}

// VolumeAnswer answers a VolumeCall: it is the body of a TypeAnswer packet.
type VolumeAnswer struct {
	Errno   uint32        `json:"errno,omitempty"` // a system error, 0 for none
	Attr    *VolumeAttr   `json:"attr,omitempty"`
	Entries []VolumeEntry `json:"entries,omitempty"` // as many as there are, up to MaxVolumeEntries
	Value   []byte        `json:"value,omitempty"`
	Names   [][]byte      `json:"names,omitempty"`
	Usage   *VolumeSpace  `json:"usage,omitempty"`
}

// MaxVolumeEntries is the most entries of an answer. They fit a packet with the longest names.
const MaxVolumeEntries = 256
