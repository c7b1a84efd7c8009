package api

import (
	"encoding/json"
	"path"
	"strings"
	"time"
)

// MaxPath is the length of the longest path that a request may name, in bytes,
// as Linux's PATH_MAX without the final NUL.
const MaxPath = 4095

// ValidPath returns a CodeInvalid error that names field unless s is an
// absolute path that a file operation may begin at. Any other byte than NUL is
// allowed, and dots are resolved in the sandbox, symbolic links included.
func ValidPath(field, s string) error {
	switch {
	case s == "":
		return Invalid(field, "a path is missing")
	case !path.IsAbs(s):
		return Invalid(field, "%q is not an absolute path", s)
	case strings.ContainsRune(s, 0):
		return Invalid(field, "a path must not have a NUL byte")
	case len(s) > MaxPath:
		return Invalid(field, "%d bytes are more than a path may have: %d", len(s), MaxPath)
	}
	return nil
}

// ValidTreePaths returns a CodeInvalid error that names field unless paths select files of a
// tree: they are absolute and clean, because a comparison does not resolve dots.
func ValidTreePaths(field string, paths []string) error {
	for _, p := range paths {
		if !path.IsAbs(p) || p != path.Clean(p) || strings.ContainsRune(p, 0) {
			return Invalid(field, "%q is not a clean absolute path", p)
		}
	}
	return nil
}

// FileInfo describes a file in a sandbox.
type FileInfo struct {
	Path   string    `json:"path" doc:"absolute path"`
	Exact  []byte    `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	Type   string    `json:"type" enum:"file,dir,symlink,fifo,socket,device" doc:"file, dir, symlink, fifo, socket or device"`
	Size   int64     `json:"size" doc:"bytes"`
	Mode   string    `json:"mode" doc:"octal"`
	UID    uint32    `json:"uid" doc:"number of the owner"`
	GID    uint32    `json:"gid" doc:"number of the group"`
	MTime  time.Time `json:"modified_at" doc:"when the contents were changed last"`
	Links  uint32    `json:"links" doc:"number of hard links"`
	Target string    `json:"target,omitempty" doc:"of a symbolic link"`
	// ExactTarget is in JSON only, as Exact is.
	ExactTarget []byte `json:"target_base64,omitempty" doc:"the bytes of the target, if they are not UTF-8"`
	ETag        string `json:"etag,omitempty" doc:"changes with the file; of regular files and symbolic links"`
	// Xattrs are extended attributes that a request asked for. Those with more than 4 KiB together, and what is not
	// UTF-8, are left out.
	Xattrs map[string]string `json:"xattrs,omitempty" hidden:"true"`
	// Created says that writing the file made it.
	Created bool `json:"created,omitempty" doc:"the file did not exist before it was written"`
}

type fileInfoJSON FileInfo

// MarshalJSON implements json.Marshaler.
func (f FileInfo) MarshalJSON() ([]byte, error) {
	f.Exact, f.ExactTarget = ExactBytes(f.Path), ExactBytes(f.Target)
	return marshal(fileInfoJSON(f))
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *FileInfo) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*fileInfoJSON)(f)); err != nil {
		return err
	}
	takeExact(&f.Path, &f.Exact)
	takeExact(&f.Target, &f.ExactTarget)
	return nil
}

// FileRef names a file for an operation.
type FileRef struct {
	Path string
	// User is the user whose permissions apply, a name or uid, optionally with :group;
	// root if empty.
	User string
	// NoFollow does not follow a symbolic link at the path.
	NoFollow bool
	// Owner is the user whom files that are written, and directories that are made, are given to; that of the request if
	// empty.
	Owner string
	// Real has the description of a file tell its path without symbolic links.
	Real bool
	// Xattrs, if not empty, begins the names of the extended attributes that descriptions tell.
	Xattrs string
}

// AnyETag stands for the ETag of any existing file, as in RFC 9110.
const AnyETag = "*"

// WriteRequest says how a file is written.
type WriteRequest struct {
	FileRef
	// Mode is that of a new file, 0644 if nil; a file that exists gets it only
	// if it is given.
	Mode *uint32
	// Atomic writes a new file and replaces the old one when all bytes have arrived.
	Atomic bool
	// Append adds to the end.
	Append bool
	// Parents makes missing directories above the file.
	Parents bool
	// IfMatch, if not empty, are ETags of which the file must have one; AnyETag is
	// that of any file.
	IfMatch []string
	// IfNoneMatch are ETags of which the file must have none.
	IfNoneMatch []string
	// New refuses to write to a file that exists.
	New bool
	// SetXattrs replaces the extended attributes of the file whose names begin with Xattrs.
	SetXattrs map[string]string
}

// FileAction is the kind of a FileChange.
type FileAction string

// The actions.
const (
	FileMkdir  FileAction = "mkdir"
	FileMove   FileAction = "move"
	FileRemove FileAction = "remove"
	FileChmod  FileAction = "chmod"
)

// FileChange changes a file or directory, but not its contents.
type FileChange struct {
	FileRef
	Action FileAction
	// To is where a move goes.
	To string
	// Mode is for mkdir, 0755 if nil, and chmod.
	Mode *uint32
	// Parents makes missing directories above the path, or To, and lets mkdir accept an
	// existing directory.
	Parents bool
	// Recursive has remove and chmod include the files below a directory.
	Recursive bool
	// Keep refuses to move over an existing file.
	Keep bool
	// IfMatch is for remove, and as in a WriteRequest. Of a symbolic link, it may be
	// the ETag of the link, or of the file that it leads to.
	IfMatch []string
}

// ListRequest asks for a page of the files below a directory, by path.
type ListRequest struct {
	FileRef
	// Depth is how many levels are listed, 1 for the directory's own entries;
	// 0 is no limit.
	Depth int
	// Glob, if not empty, selects files: a pattern without a slash is for names, a pattern
	// with slashes for paths below the directory, where ** is any number of directories.
	Glob string
	// Limit is the most entries of a page; a page may have fewer.
	Limit int
	// After is the path, relative to the directory, of the last entry of the
	// page before.
	After string
}

// FileList is a page of a list.
type FileList struct {
	Files []FileInfo
	// Next is the value of After for the next page; empty after the last page.
	Next string
}

// SearchRequest asks for files by name, by content, or by both.
type SearchRequest struct {
	FileRef
	// Glob is as in a ListRequest.
	Glob string
	// Text, if not empty, is the text that a line must contain. Binary files are skipped.
	Text string
	// Regexp says that Text is a regular expression.
	Regexp bool
	// IgnoreCase ignores the case of letters in Text.
	IgnoreCase bool
	// Limit is the most matches.
	Limit int
}

// Match is a line, or a file, that a search found.
type Match struct {
	File FileInfo `json:"file" doc:"the file"`
	Line int      `json:"line,omitempty" doc:"number of the line, from 1; absent in a search by name"`
	Text string   `json:"text,omitempty" doc:"the line, cut to 1024 bytes"`
}

// SearchResult is the result of a search.
type SearchResult struct {
	Matches   []Match `json:"matches" doc:"matching lines or files"`
	Truncated bool    `json:"truncated" doc:"there are more matches than the limit"`
}

// ExtractResult counts the files that were made from an archive.
type ExtractResult struct {
	Files       int64 `json:"files" doc:"entries of the archive, directories and links included"`
	Directories int64 `json:"directories" doc:"entries that are directories"`
	Bytes       int64 `json:"bytes" doc:"bytes of contents"`
}

// WatchRequest asks for changes of files.
type WatchRequest struct {
	FileRef
	Recursive bool
	// DebounceMS is how long changes are collected before they are reported.
	DebounceMS int
	// Every reports each kind of change of a path in its turn, and not the last one alone. What was moved away has
	// kind "moved" then.
	Every bool
}

// FileEvent is a change of a path.
type FileEvent struct {
	Path  string `json:"path" doc:"absolute path"`
	Exact []byte `json:"path_base64,omitempty" doc:"the bytes of the path, if they are not UTF-8"`
	Kind  string `json:"kind" enum:"created,modified,deleted,attributes" doc:"last change of the path; a move is deleted and created"`
	Dir   bool   `json:"dir,omitempty" doc:"it is a directory"`
}

type fileEventJSON FileEvent

// MarshalJSON implements json.Marshaler.
func (e FileEvent) MarshalJSON() ([]byte, error) {
	e.Exact = ExactBytes(e.Path)
	return marshal(fileEventJSON(e))
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *FileEvent) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*fileEventJSON)(e)); err != nil {
		return err
	}
	takeExact(&e.Path, &e.Exact)
	return nil
}

// FileEvents are changes that were collected: at most one for each path, in the
// order of the first change, unless the request was for every one.
type FileEvents struct {
	// Ready is true in the first answer: all changes from then on are reported.
	Ready bool `json:"ready,omitempty" doc:"from now on all changes are reported"`
	// Overflow says that changes were lost: the client has to read the files again.
	Overflow bool        `json:"overflow,omitempty" doc:"changes were dropped: read the files again"`
	Changes  []FileEvent `json:"changes" doc:"changes"`
}
