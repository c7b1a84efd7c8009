package wire

// Patch asks for the changes of a merge to be made to the files of the sandbox, all or
// none. The changes come in a file with the call: a sequence of PatchOp as JSON, which are
// made in their order, and contents. The guest stands still meanwhile. The sentry first
// looks for changes that the guest made since the view that the merge was planned on.
type Patch struct {
	// View is the id of the View, which must not be released yet, and Root its
	// tree's root page.
	View string `json:"view"`
	Root uint64 `json:"root"`
	// OpsAt and OpsSize say where in the file the PatchOps are, in bytes.
	OpsAt   int64 `json:"ops_at"`
	OpsSize int64 `json:"ops_size"`
}

const (
	// MaxPatchOps bounds the changes of one Patch.
	MaxPatchOps = 1 << 17
	// MaxPatchBytes bounds its PatchOps, without the contents.
	MaxPatchBytes = 128 << 20
)

// Patched is the reply to Patch.
type Patched struct {
	// Stale is a path of the Patch that was changed since the view. Nothing was done.
	Stale   []byte  `json:"stale,omitempty"`
	PauseMS float64 `json:"pause_ms"`
	Timed
}

// PatchKind is the kind of a PatchOp.
type PatchKind string

// The kinds of PatchOp.
const (
	PatchRemove PatchKind = "remove" // a file or an empty directory
	PatchMake   PatchKind = "make"   // any file, where nothing is
	PatchLink   PatchKind = "link"   // another name of From, where nothing is
	PatchAttrs  PatchKind = "attrs"  // mode, owner and extended attributes of a file that exists
	PatchTake   PatchKind = "take"   // put a file or directory aside, with all below
	PatchPlace  PatchKind = "place"  // put the file that was taken at From where nothing is
)

// PatchOp is one change. Paths are clean and absolute, and need not be UTF-8.
type PatchOp struct {
	Kind   PatchKind `json:"op"`
	Path   []byte    `json:"path"`
	From   []byte    `json:"from,omitempty"`
	Mode   uint32    `json:"mode,omitempty"` // with the type, see stat(2)
	UID    uint32    `json:"uid,omitempty"`
	GID    uint32    `json:"gid,omitempty"`
	Major  uint32    `json:"major,omitempty"`
	Minor  uint32    `json:"minor,omitempty"`
	Target []byte    `json:"target,omitempty"` // of a symbolic link
	Size   int64     `json:"size,omitempty"`
	// Data is the contents of a regular file; the rest is zero.
	Data []PatchData `json:"data,omitempty"`
	// Xattrs are set, those without a value removed.
	Xattrs []PatchXattr `json:"xattrs,omitempty"`
}

// PatchData is a part of a file's contents: N bytes at Offset, from At in the file
// that came with the call.
type PatchData struct {
	Offset int64 `json:"o"`
	N      int64 `json:"n"`
	At     int64 `json:"at"`
}

// PatchXattr is an extended attribute.
type PatchXattr struct {
	Name  []byte  `json:"name"`
	Value *[]byte `json:"value,omitempty"` // nil: none
}
