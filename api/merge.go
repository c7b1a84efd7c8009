package api

import "encoding/json"

// MergeStrategy says what a merge does about conflicts.
type MergeStrategy string

// The strategies. MergeOurs and MergeTheirs decide about what is in conflict and
// nothing else: single lines of a text, single attributes, or else a whole path.
const (
	MergeLeave  MergeStrategy = "leave"  // paths in conflict stay as they are
	MergeOurs   MergeStrategy = "ours"   // what the sandbox has that is merged into
	MergeTheirs MergeStrategy = "theirs" // what is merged into it; of several the last
	MergeFail   MergeStrategy = "fail"   // a conflict leaves all as it is
)

// MergeRequest asks for changes of files to be brought to a sandbox.
type MergeRequest struct {
	From     []string      `json:"from" minItems:"1" maxItems:"100" doc:"sandboxes and snapshots whose changes are brought, one after the other"`
	Paths    []string      `json:"paths,omitempty" doc:"only these paths and what is below them; one that no side has is an error; all but /tmp if there are none. /dev, /proc, /sys and the files of a sandbox's identity are never merged"`
	Exclude  []string      `json:"exclude,omitempty" maxItems:"100" doc:"patterns of names, as of shells: what is called so, and what is below it, is not merged"`
	DryRun   bool          `json:"dry_run,omitempty" doc:"say what would be done and change nothing"`
	Strategy MergeStrategy `json:"strategy,omitempty" doc:"what to do about conflicts: leave those paths as they are, decide for what the sandbox has or for what is merged, or do nothing at all; leave if absent"`
}

// MergeResult is the outcome of a merge.
type MergeResult struct {
	Into     string        `json:"into" doc:"sandbox that was merged into"`
	Sides    []MergeSide   `json:"sides" doc:"what was merged, in order"`
	Exclude  []string      `json:"exclude,omitempty" maxItems:"100" doc:"patterns of names, as of shells: what is called so, and what is below it, is not merged"`
	DryRun   bool          `json:"dry_run" doc:"nothing was changed"`
	Strategy MergeStrategy `json:"strategy" doc:"how conflicts were treated"`
	// Applied is what changed in the sandbox, or would.
	Applied   []MergeChange   `json:"applied" doc:"what changed in the sandbox, or would if this was not a dry run"`
	Conflicts []MergeConflict `json:"conflicts" doc:"paths about which the sides do not agree"`
	PauseMS   float64         `json:"pause_ms" doc:"how long the sandbox stood still"`
}

// Unresolved returns how many conflicts no strategy decided.
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
	Base string `json:"base" doc:"the moment at which it and the sandbox parted: a freeze or snapshot, or the image"`
}

// MergeChange is a path that a merge changed. Old values are given where they
// differ.
type MergeChange struct {
	Path     string     `json:"path" doc:"absolute path"`
	Kind     ChangeKind `json:"kind" doc:"added, modified, deleted or renamed; of what is below a renamed directory only what changed besides is listed"`
	OldPath  string     `json:"old_path,omitempty" doc:"of what was renamed"`
	From     string     `json:"from" doc:"where the change comes from, the last if there are several"`
	Merged   bool       `json:"merged,omitempty" doc:"what is there now was made of several versions"`
	Type     string     `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	OldType  string     `json:"old_type,omitempty" enum:"file,dir,symlink,fifo,socket,device" doc:"in the first one, if it differs"`
	Size     int64      `json:"size" doc:"bytes"`
	OldSize  int64      `json:"old_size,omitempty" doc:"bytes in the first one, if they differ"`
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

// MergeConflict is a path about which the sides do not agree. A version is absent
// where there is nothing.
type MergeConflict struct {
	Path     string        `json:"path" doc:"absolute path"`
	Exact    []byte        `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	From     string        `json:"from" doc:"the side that was merged"`
	OursFrom string        `json:"ours_from,omitempty" doc:"the side that brought what ours has, if it was merged before"`
	Reason   string        `json:"reason" enum:"deleted,type,content,attributes,directory" doc:"deleted (by one, changed by the other), type, content, attributes or directory (gone on one side, and the other has something in it)"`
	Resolved MergeStrategy `json:"resolved,omitempty" doc:"the strategy by which it was decided: ours or theirs; absent if the path was left as it was"`
	Base     *MergeVersion `json:"base,omitempty" doc:"where the sides parted"`
	Ours     *MergeVersion `json:"ours,omitempty" doc:"in the sandbox"`
	Theirs   *MergeVersion `json:"theirs,omitempty" doc:"in what was merged"`
	Hunks    []MergeHunk   `json:"hunks,omitempty" doc:"lines of a text that are in conflict"`
	NoHunks  NoHunks       `json:"no_hunks,omitempty" doc:"why contents in conflict are not shown line by line: binary, too_large or limit (of all together)"`
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

// MergeVersion is what one side has at a path.
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

// MergeHunk is a part of a text that is in conflict.
type MergeHunk struct {
	Base   MergeLines `json:"base" doc:"where the sides parted"`
	Ours   MergeLines `json:"ours" doc:"in the sandbox"`
	Theirs MergeLines `json:"theirs" doc:"in what was merged"`
}

// MergeLines are lines of one version.
type MergeLines struct {
	Start int    `json:"start" doc:"number of the first line, or of the one behind if there are none; from 1 on"`
	Text  string `json:"text" doc:"the lines"`
}
