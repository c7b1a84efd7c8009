package api

import "encoding/json"

// MergeStrategy is how a merge treats conflicts.
type MergeStrategy string

// The strategies. MergeOurs and MergeTheirs decide only the conflicting parts: single lines of
// a text, single attributes, or else a whole path.
const (
	MergeLeave  MergeStrategy = "leave"  // paths in conflict stay as they are
	MergeOurs   MergeStrategy = "ours"   // the version of the sandbox that is merged into
	MergeTheirs MergeStrategy = "theirs" // the version of the merged side; of several sides the last
	MergeFail   MergeStrategy = "fail"   // a conflict leaves the sandbox as it is
)

// MergeRequest asks for changes of files to be merged into a sandbox.
type MergeRequest struct {
	From     []string      `json:"from" minItems:"1" maxItems:"100" doc:"sandboxes and snapshots whose changes are merged, one after the other"`
	Paths    []string      `json:"paths,omitempty" doc:"only these paths and the files below them; a path that no side has is an error; without paths, all files except /tmp. /dev, /proc, /sys and the files of a sandbox's identity are never merged"`
	Exclude  []string      `json:"exclude,omitempty" maxItems:"100" doc:"patterns of names, as of shells: files and directories with such names are not merged, nor are the files below them"`
	DryRun   bool          `json:"dry_run,omitempty" doc:"report the changes without making them"`
	Strategy MergeStrategy `json:"strategy,omitempty" doc:"treatment of conflicts: leave the paths as they are, take the sandbox's version (ours) or the merged one (theirs), or merge nothing at all (fail); leave if absent"`
}

// MergeResult is the outcome of a merge.
type MergeResult struct {
	Into     string        `json:"into" doc:"sandbox that was merged into"`
	Sides    []MergeSide   `json:"sides" doc:"merged sides, in order"`
	Exclude  []string      `json:"exclude,omitempty" maxItems:"100" doc:"patterns of names, as of shells: files and directories with such names are not merged, nor are the files below them"`
	DryRun   bool          `json:"dry_run" doc:"nothing was changed"`
	Strategy MergeStrategy `json:"strategy" doc:"how conflicts were treated"`
	// Applied has the changes in the sandbox or, in a dry run, those that would be made.
	Applied   []MergeChange   `json:"applied" doc:"changes in the sandbox; in a dry run, those that would be made"`
	Conflicts []MergeConflict `json:"conflicts" doc:"paths with conflicting changes"`
	PauseMS   float64         `json:"pause_ms" doc:"how long the sandbox stood still"`
}

// Unresolved returns the number of conflicts that no strategy resolved.
func (r *MergeResult) Unresolved() int {
	n := 0
	for i := range r.Conflicts {
		if r.Conflicts[i].Resolved == "" {
			n++
		}
	}
	return n
}

// MergeSide is one of the sandboxes and snapshots that were merged.
type MergeSide struct {
	From string `json:"from" doc:"id of the sandbox or snapshot"`
	Base string `json:"base" doc:"the fork point of it and the sandbox: a freeze or snapshot, or the image"`
}

// MergeChange is a path that a merge changed. Old values are given where they
// differ.
type MergeChange struct {
	Path     string     `json:"path" doc:"absolute path"`
	Kind     ChangeKind `json:"kind" doc:"added, modified, deleted or renamed; files below a renamed directory are listed only if they were modified"`
	OldPath  string     `json:"old_path,omitempty" doc:"old path of a renamed file"`
	From     string     `json:"from" doc:"side that the change comes from, the last if there are several"`
	Merged   bool       `json:"merged,omitempty" doc:"the new contents combine several versions"`
	Type     string     `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	OldType  string     `json:"old_type,omitempty" enum:"file,dir,symlink,fifo,socket,device" doc:"in the first sandbox, if it differs"`
	Size     int64      `json:"size" doc:"bytes"`
	OldSize  int64      `json:"old_size,omitempty" doc:"bytes in the first sandbox, if they differ"`
	Mode     string     `json:"mode" doc:"octal"`
	Owner    string     `json:"owner" doc:"numbers of user and group"`
	Exact    []byte     `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	OldExact []byte     `json:"old_path_base64,omitempty" doc:"the bytes of the old path, if they are not UTF-8"`
}

type mergeChangeJSON MergeChange

// MarshalJSON implements json.Marshaler.
func (c MergeChange) MarshalJSON() ([]byte, error) {
	c.Exact, c.OldExact = ExactBytes(c.Path), ExactBytes(c.OldPath)
	return marshal(mergeChangeJSON(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *MergeChange) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*mergeChangeJSON)(c)); err != nil {
		return err
	}
	takeExact(&c.Path, &c.Exact)
	takeExact(&c.OldPath, &c.OldExact)
	return nil
}

// MergeConflict is a path with conflicting changes. A version is absent where the path does
// not exist.
type MergeConflict struct {
	Path     string        `json:"path" doc:"absolute path"`
	Exact    []byte        `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	From     string        `json:"from" doc:"the side that was merged"`
	OursFrom string        `json:"ours_from,omitempty" doc:"the side that the version in ours comes from, if it was merged before"`
	Reason   string        `json:"reason" enum:"deleted,type,content,attributes,directory" doc:"deleted (on one side, and changed on the other), type, content, attributes or directory (deleted on one side, and not empty on the other)"`
	Resolved MergeStrategy `json:"resolved,omitempty" doc:"the strategy that resolved it: ours or theirs; absent if the path was left as it was"`
	Base     *MergeVersion `json:"base,omitempty" doc:"version at the fork point"`
	Ours     *MergeVersion `json:"ours,omitempty" doc:"version in the sandbox"`
	Theirs   *MergeVersion `json:"theirs,omitempty" doc:"version of the merged side"`
	Hunks    []MergeHunk   `json:"hunks,omitempty" doc:"conflicting lines of a text"`
	NoHunks  NoHunks       `json:"no_hunks,omitempty" doc:"why conflicting contents are not shown line by line: binary, too_large or limit (of all files together)"`
}

type mergeConflictJSON MergeConflict

// MarshalJSON implements json.Marshaler.
func (c MergeConflict) MarshalJSON() ([]byte, error) {
	c.Exact = ExactBytes(c.Path)
	return marshal(mergeConflictJSON(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *MergeConflict) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*mergeConflictJSON)(c)); err != nil {
		return err
	}
	takeExact(&c.Path, &c.Exact)
	return nil
}

// MergeVersion is the version of a path on a side.
type MergeVersion struct {
	Type   string            `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	Size   int64             `json:"size" doc:"bytes"`
	Mode   string            `json:"mode" doc:"octal"`
	Owner  string            `json:"owner" doc:"numbers of user and group"`
	SHA256 string            `json:"sha256,omitempty" doc:"of a file, unless it is large"`
	Target string            `json:"target,omitempty" doc:"of a symbolic link"`
	Exact  []byte            `json:"target_base64,omitempty" doc:"the bytes of the target, if they are not UTF-8"`
	Xattrs map[string]string `json:"xattrs,omitempty" doc:"extended attributes, if the versions differ in them, with values in base64"`
}

type mergeVersionJSON MergeVersion

// MarshalJSON implements json.Marshaler.
func (v MergeVersion) MarshalJSON() ([]byte, error) {
	v.Exact = ExactBytes(v.Target)
	return marshal(mergeVersionJSON(v))
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *MergeVersion) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*mergeVersionJSON)(v)); err != nil {
		return err
	}
	takeExact(&v.Target, &v.Exact)
	return nil
}

// MergeHunk is a conflicting part of a text.
type MergeHunk struct {
	Base   MergeLines `json:"base" doc:"version at the fork point"`
	Ours   MergeLines `json:"ours" doc:"version in the sandbox"`
	Theirs MergeLines `json:"theirs" doc:"version of the merged side"`
}

// MergeLines are lines of a version.
type MergeLines struct {
	Start int    `json:"start" doc:"number of the first line, from 1; if there are no lines, of the line after their place"`
	Text  string `json:"text" doc:"the lines"`
}
