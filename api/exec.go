package api

// ExecRequest asks for a command. Exactly one of Argv and Shell is set.
type ExecRequest struct {
	Argv      []string          `json:"argv,omitempty" doc:"program and arguments, without a shell"`
	Shell     string            `json:"shell,omitempty" doc:"run by /bin/sh -c"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of the sandbox"`
	Cwd       string            `json:"cwd,omitempty" doc:"absolute path of the directory that it starts in; the default of the sandbox if absent"`
	User      string            `json:"user,omitempty" doc:"name or uid, optionally :group"`
	Stdin     string            `json:"stdin,omitempty" doc:"text given on standard input"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" doc:"0 is no limit; at the limit the command and all processes that it started are killed"`
	// Key lets the command go on when its daemon ends. From is for a request to the next
	// daemon.
	Key  string `json:"key,omitempty" pattern:"^[A-Za-z0-9]{16,64}$" doc:"an unguessable text that the caller chooses: if the daemon ends, the command, which has no standard input, goes on for 30 s, in which the caller can resume it with the same request and from; only for answers in frames"`
	From *int64 `json:"from,omitempty" minimum:"0" doc:"resume the command with this key, and its output at this byte of both streams together; no command is started"`
}

// ExecResult is the outcome of a command. A command that fails is a result, not
// an error.
type ExecResult struct {
	Stdout     string  `json:"stdout" doc:"standard output"`
	Stderr     string  `json:"stderr" doc:"standard error"`
	ExitCode   int     `json:"exit_code" doc:"128+signal if a signal ended it"`
	OK         bool    `json:"ok" doc:"the exit code is 0"`
	Signal     string  `json:"signal" doc:"the signal that ended it, or empty"`
	TimedOut   bool    `json:"timed_out,omitempty" doc:"it was killed at its deadline"`
	Idle       bool    `json:"idle,omitempty" doc:"the idle timeout ended it"`
	DurationMS float64 `json:"duration_ms" doc:"how long it ran"`
	Truncated  bool    `json:"truncated,omitempty" doc:"a stream, or the results of a cell, were longer than is kept"`
}
