package api

import "time"

// Process is a process in a sandbox.
type Process struct {
	PID        int       `json:"pid" doc:"process id in the sandbox"`
	PPID       int       `json:"ppid" doc:"process id of the parent"`
	UID        int       `json:"uid" doc:"number of the user"`
	Threads    int       `json:"threads" doc:"number of threads"`
	State      string    `json:"state" doc:"as ps shows it, or \"ended\""`
	Command    string    `json:"command" doc:"command line"`
	CPUSeconds float64   `json:"cpu_seconds" doc:"processor time"`
	MemoryMiB  float64   `json:"memory_mib" doc:"resident memory, shared memory included"`
	StartedAt  time.Time `json:"started_at" doc:"when it was started"`
	// Kept is set for a process that was started through the interface: its output is kept,
	// and clients can attach to it.
	Kept *KeptProcess `json:"kept,omitempty" doc:"set if it was started through the interface: its output is kept, and clients can attach to it"`
}

// ProcessChange is a process that differs between two sandboxes.
type ProcessChange struct {
	PID        int        `json:"pid" doc:"process id in the sandbox"`
	PPID       int        `json:"ppid" doc:"process id of the parent"`
	UID        int        `json:"uid" doc:"number of the user"`
	Kind       ChangeKind `json:"kind" doc:"added, deleted, or modified: it has executed another program"`
	Command    string     `json:"command" doc:"command line"`
	OldCommand string     `json:"old_command,omitempty" doc:"in the first sandbox, if it differs"`
}

// KeptProcess describes a process that was started through the interface. The process may
// have ended.
type KeptProcess struct {
	Terminal  bool        `json:"terminal" doc:"it has a terminal"`
	Stdin     bool        `json:"stdin" doc:"its standard input is open for writing"`
	Inherited bool        `json:"inherited" doc:"it was started in an ancestor of this sandbox"`
	FirstSeq  int64       `json:"first_seq" doc:"sequence number of the oldest byte of output that is kept"`
	NextSeq   int64       `json:"next_seq" doc:"sequence number of the next byte of output: how many bytes were written"`
	EndedAt   *time.Time  `json:"ended_at,omitempty" doc:"when it ended; absent if it runs"`
	Exit      *ExecResult `json:"exit,omitempty" doc:"how it ended; without output"`
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Cols uint16 `json:"cols" doc:"characters in a line" minimum:"1" maximum:"65535"`
	Rows uint16 `json:"rows" doc:"lines" minimum:"1" maximum:"65535"`
}

// StartRequest asks for a process that needs no caller. Exactly one of Argv and
// Shell is set.
type StartRequest struct {
	Argv          []string          `json:"argv,omitempty" doc:"program and arguments, without a shell"`
	Shell         string            `json:"shell,omitempty" doc:"run by /bin/sh -c"`
	Env           map[string]string `json:"env,omitempty" doc:"added to the environment of the sandbox"`
	Cwd           string            `json:"cwd,omitempty" doc:"absolute path of the directory that it starts in; the default of the sandbox if absent"`
	User          string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	Stdin         bool              `json:"stdin,omitempty" doc:"keep standard input open for writing; else it is /dev/null"`
	Terminal      *TerminalSize     `json:"terminal,omitempty" doc:"give it a terminal of this size, which is its input and its output"`
	TimeoutMS     int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"0 is no limit; at the limit the process and its group are killed"`
	IdleTimeoutMS int64             `json:"idle_timeout_ms,omitempty" minimum:"0" doc:"the same after so long without output or input"`
	KeepKiB       int64             `json:"keep_kib,omitempty" minimum:"0" maximum:"16384" doc:"how much of the end of its output is kept, in KiB; 1024 if absent"`
}

// SignalRequest asks for a signal.
type SignalRequest struct {
	Signal     string `json:"signal" doc:"name with or without SIG, or number"`
	Group      bool   `json:"group,omitempty" doc:"send it to all processes of the process's group"`
	Foreground bool   `json:"foreground,omitempty" doc:"send it also to the foreground group of the process's terminal, that is, to the command that a shell runs there; the process gets it first"`
}

// Chunk is a piece of the output of a process or, with Lost, the place of a piece that is not
// kept any more.
type Chunk struct {
	Stderr bool
	// Seq is the sequence number of the first byte: the number of bytes of both
	// streams that came before.
	Seq  int64
	Time time.Time
	Data []byte
	Lost int64 // bytes; if not 0, only Seq is set besides
}

// LogPiece is a piece of the output of one of several processes, or the position to which its
// output has been read.
type LogPiece struct {
	PID   int
	Chunk Chunk
	Read  *Position // if not nil, Chunk means nothing
}

// AttachRequest selects the part of a process's output.
type AttachRequest struct {
	// From is the sequence number of the first byte, -1 for output from now on.
	From int64
	// Follow asks for output until the process ends, else only for the kept output.
	Follow bool
}

// Position is the position to which the output of a process has been read.
type Position struct {
	NextSeq int64       `json:"next_seq" doc:"sequence number of the next byte"`
	Exit    *ExecResult `json:"exit,omitempty" doc:"how the process ended; without output"`
}
