package api

import "encoding/json"

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of change between two file systems.
const (
	Added    ChangeKind = "added"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	Renamed  ChangeKind = "renamed"
)

// Undecided is a variable of which only a part was compared, without a difference.
const Undecided ChangeKind = "undecided"

// Change is a path that differs between two sandboxes. An old type, mode and
// owner are given where they differ.
type Change struct {
	Path       string     `json:"path" doc:"absolute path, in the second sandbox or, if deleted, in the first"`
	Kind       ChangeKind `json:"kind" doc:"added, modified, deleted or renamed; a renamed file may be modified too; files below a renamed directory are listed only if they were modified"`
	Exact      []byte     `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	OldPath    string     `json:"old_path,omitempty" doc:"in the first sandbox, if the file or a directory above it was renamed"`
	OldExact   []byte     `json:"old_path_base64,omitempty" doc:"the bytes of the old path, if they are not UTF-8"`
	Type       string     `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	OldType    string     `json:"old_type,omitempty" enum:"file,dir,symlink,fifo,socket,device" doc:"in the first sandbox, if it differs"`
	Size       int64      `json:"size" doc:"bytes in the second sandbox, or in the first if deleted"`
	OldSize    int64      `json:"old_size,omitempty" doc:"bytes in the first sandbox, if they differ"`
	Mode       string     `json:"mode" doc:"octal"`
	OldMode    string     `json:"old_mode,omitempty" doc:"in the first sandbox, if it differs"`
	Owner      string     `json:"owner" doc:"numbers of user and group"`
	OldOwner   string     `json:"old_owner,omitempty" doc:"in the first sandbox, if it differs"`
	Content    bool       `json:"content,omitempty" doc:"the contents of a file, the target of a link or the number of a device differ"`
	Xattrs     []string   `json:"xattrs,omitempty" doc:"extended attributes that differ"`
	Insertions int        `json:"insertions,omitempty" doc:"lines that are new, on request"`
	Deletions  int        `json:"deletions,omitempty" doc:"lines that are gone, on request"`
	Hunks      string     `json:"hunks,omitempty" doc:"unified diff of text files, on request"`
	NoHunks    NoHunks    `json:"no_hunks,omitempty" doc:"why a file was not compared line by line as requested: binary, too_large or limit (of all files together)"`
}

type changeJSON Change

// MarshalJSON implements json.Marshaler.
func (c Change) MarshalJSON() ([]byte, error) {
	c.Exact, c.OldExact = ExactBytes(c.Path), ExactBytes(c.OldPath)
	return marshal(changeJSON(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Change) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*changeJSON)(c)); err != nil {
		return err
	}
	takeExact(&c.Path, &c.Exact)
	takeExact(&c.OldPath, &c.OldExact)
	return nil
}

// NoHunks says why a file was not compared line by line.
type NoHunks string

// The reasons.
const (
	NoHunksBinary   NoHunks = "binary"
	NoHunksTooLarge NoHunks = "too_large"
	NoHunksLimit    NoHunks = "limit"
)

// DiffRequest selects the parts of a comparison.
type DiffRequest struct {
	Paths []string `json:"paths,omitempty" doc:"only these paths and the files below them; without paths, all files except /dev, /proc, /sys, /tmp and those of a sandbox's identity"`
	Hunks bool     `json:"hunks,omitempty" doc:"include unified diffs of text files"`
	Stat  bool     `json:"stat,omitempty" doc:"include numbers of lines that differ"`
	// Processes and Variables need two running sandboxes.
	Processes bool `json:"processes,omitempty" doc:"include the processes"`
	Variables bool `json:"variables,omitempty" doc:"include the variables of Python and Node contexts"`
}

// Diff is the difference from one sandbox or snapshot to another.
type Diff struct {
	From    string   `json:"from" doc:"id of the first side"`
	To      string   `json:"to" doc:"id of the second side"`
	Base    string   `json:"base" doc:"nearest common ancestor"`
	Changes []Change `json:"changes" doc:"paths that differ"`
	// Processes and Variables are only there on request.
	Processes []ProcessChange  `json:"processes,omitzero" doc:"processes that differ, on request"`
	Variables []VariableChange `json:"variables,omitzero" doc:"variables of contexts that differ, on request"`
}
