package wire

// Verb is the operation of a File call.
type Verb string

// The verbs. Package api documents the fields of File.
const (
	FileStat    Verb = "stat"
	FileRead    Verb = "read"
	FileWrite   Verb = "write"
	FileMkdir   Verb = "mkdir"
	FileMove    Verb = "move"
	FileRemove  Verb = "remove"
	FileChmod   Verb = "chmod"
	FileList    Verb = "list"
	FileSearch  Verb = "search"
	FileArchive Verb = "archive"
	FileExtract Verb = "extract"
	FileWatch   Verb = "watch"
)

// File is a call about files. Paths are bytes, because JSON strings cannot carry
// all of them.
type File struct {
	Verb       Verb     `json:"verb"`
	Path       []byte   `json:"path"`
	User       string   `json:"user,omitempty"`
	NoFollow   bool     `json:"no_follow,omitempty"`
	Real       bool     `json:"real,omitempty"`
	Xattrs     string   `json:"xattrs,omitempty"`
	Owner      string   `json:"owner,omitempty"`
	To         []byte   `json:"to,omitempty"`
	Mode       *uint32  `json:"mode,omitempty"`
	Atomic     bool     `json:"atomic,omitempty"`
	Append     bool     `json:"append,omitempty"`
	Parents    bool     `json:"parents,omitempty"`
	New        bool     `json:"new,omitempty"`
	Keep       bool     `json:"keep,omitempty"`
	Recursive  bool     `json:"recursive,omitempty"`
	IfMatch    []string `json:"if_match,omitempty"`
	NoneMatch  []string `json:"none_match,omitempty"`
	Depth      int      `json:"depth,omitempty"`
	Glob       []byte   `json:"glob,omitempty"`
	Limit      int      `json:"limit,omitempty"`
	After      []byte   `json:"after,omitempty"`
	Text       []byte   `json:"text,omitempty"`
	Regexp     bool     `json:"regexp,omitempty"`
	IgnoreCase bool     `json:"ignore_case,omitempty"`
	DebounceMS int      `json:"debounce_ms,omitempty"`
	Every      bool     `json:"every,omitempty"`

	SetXattrs map[string]string `json:"set_xattrs,omitempty"`
}

// Range is the body of a TypeRange packet. Data packets with the
// bytes follow, fewer where the file has ended, and then an empty one.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// Listed is the reply to a list and a search.
type Listed struct {
	// Next is where the next page of a list begins.
	Next []byte `json:"next,omitempty"`
	// Truncated says that a search ended at its limit.
	Truncated bool `json:"truncated,omitempty"`
}
