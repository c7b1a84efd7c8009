package api

import "time"

// AutoCheckpoint has the daemon keep the state of a sandbox after every command and cell in the
// foreground. A child inherits the setting, and has a timeline of its own.
type AutoCheckpoint struct {
	Keep int `json:"keep" minimum:"2" maximum:"1000" doc:"how many steps are kept, the latest ones"`
}

// Valid returns a CodeInvalid error unless a can be carried out. It may be nil.
func (a *AutoCheckpoint) Valid() error {
	if a != nil && (a.Keep < 2 || a.Keep > 1000) {
		return Invalid("auto_checkpoint.keep", "%d is not from 2 to 1000", a.Keep)
	}
	return nil
}

// StepKind is the kind of a step.
type StepKind string

// The kinds of steps.
const (
	StepStart   StepKind = "start" // the state before the first command
	StepExec    StepKind = "exec"
	StepRunCode StepKind = "run_code"
	StepFiles   StepKind = "files" // writes from outside between two commands
)

// Step is a state that a sandbox can return to.
type Step struct {
	Step      int           `json:"step" doc:"counted from 0, the state before the first command"`
	Kind      StepKind      `json:"kind" doc:"start, exec, run_code or files"`
	Command   string        `json:"command,omitempty" doc:"command or code of the step, unless it is very long; for files the first path, and how many writes followed"`
	Context   string        `json:"context,omitempty" doc:"run_code: the interpreter"`
	ExitCode  int           `json:"exit_code" doc:"of the command"`
	At        time.Time     `json:"at" doc:"when the command ended"`
	Snapshot  string        `json:"snapshot,omitempty" doc:"id of the checkpoint, which no list shows"`
	State     SnapshotState `json:"state" doc:"state of the checkpoint; a sandbox can return to ready and uploading ones"`
	SizeBytes int64         `json:"size_bytes" doc:"bytes on disk: the differences to the steps before"`
	Current   bool          `json:"current,omitempty" doc:"the sandbox came from it, or is at it"`
}

// BisectRequest looks for the first step at which a command fails. Exactly one of Argv
// and Shell is set.
type BisectRequest struct {
	Argv      []string          `json:"argv,omitempty" doc:"program and arguments, without a shell"`
	Shell     string            `json:"shell,omitempty" doc:"run by /bin/sh -c"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of the sandbox"`
	Cwd       string            `json:"cwd,omitempty" doc:"absolute path of the directory that it starts in; the default of the sandbox if absent"`
	User      string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"limit of each run, 0 is no limit; a run that is killed has failed"`
}

// BisectResult is the result of a bisection.
type BisectResult struct {
	// First is nil if the command succeeds at the last step.
	First *Step `json:"first,omitempty" doc:"the first step at which the command fails; absent if it succeeds at the last one. If it is the first step that is kept, the change that broke the command came before it"`
	// The outcome of the command at First, or at the last step.
	ExitCode int    `json:"exit_code" doc:"of the command at that step"`
	Stdout   string `json:"stdout" doc:"the end of its standard output there"`
	Stderr   string `json:"stderr" doc:"the end of its standard error there"`
	Tried    []Try  `json:"tried" nullable:"false" doc:"the runs, in their order"`
}

// Try is a run of a bisection.
type Try struct {
	Step     int  `json:"step" doc:"number of the step"`
	ExitCode int  `json:"exit_code" doc:"exit code of the command"`
	TimedOut bool `json:"timed_out,omitempty" doc:"the run was killed"`
}
