package api

import (
	"encoding/json"
	"io"
)

// ExecIO are the streams of a command. The call that takes them does not wait for a read
// of Stdin that blocks when the command has ended; that read is left behind.
type ExecIO struct {
	// Stdin is nil for a command without standard input.
	Stdin io.Reader
	// Stdout and Stderr take the output. The command waits while a write blocks, and
	// ends when a write fails. nil drops the output.
	Stdout, Stderr io.Writer
}

// RunIO takes the output and the results of a cell. The cell waits while a call blocks, and
// is interrupted when a call fails. A nil field drops its part.
type RunIO struct {
	Stdout, Stderr io.Writer
	// Result takes one result as an object with one entry for each media type.
	Result func(map[string]json.RawMessage) error
}

// AttachIO connects a caller with a process that goes on without the caller.
type AttachIO struct {
	// Stdin is the process's input, or nil. Its end closes the standard input of the
	// process, unless that is a terminal. An error of Stdin only ends the input.
	Stdin io.Reader
	// Sizes are the sizes of the caller's terminal, or nil. A client reads them, and a daemon
	// does not: it is told each one by itself.
	Sizes <-chan TerminalSize
	// Output takes the next chunk, whose data are valid until it returns. Output is read
	// no faster than it returns, and the call ends with its error.
	Output func(Chunk) error
}

// Discard returns w, or io.Discard for nil.
func Discard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
