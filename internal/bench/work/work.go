package work

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

const (
	// All is the name of the sum of all pieces.
	All = "all"
	// pieceLimit ends one piece.
	pieceLimit = 2 * time.Minute
	// Limit is enough for all pieces and the preparation.
	Limit = 10 * time.Minute
)

// script prints a line for each piece.
//
//go:embed work.sh
var script string

// Packages are the packages of Debian that the script needs.
var Packages = []string{"gcc", "libc6-dev", "make", "git", "python3", "python3-pytest"}

// Pieces are the names of the pieces, in their order.
func Pieces() []string {
	return []string{"cpu", "spawn", "python", "make", "git", "find", "grep", "pytest", "tar", "sqlite", "pipes"}
}

// Command returns the command that runs the script as root in a sandbox or container.
func Command() []string {
	return []string{"/bin/bash", "-c", script, "work", strconv.Itoa(int(pieceLimit / time.Second))}
}

// Inside runs Command in a sandbox.
func Inside(ctx context.Context, c *client.Client, ref string, out io.Writer) error {
	res, err := c.Processes.ExecStream(ctx, ref, api.ExecRequest{Argv: Command(), TimeoutMS: Limit.Milliseconds()}, api.ExecIO{Stdout: out})
	if err == nil && !res.OK {
		err = fmt.Errorf("the work ended with exit code %d", res.ExitCode)
	}
	return err
}

// Times are the times of pieces, with All if every piece succeeded.
type Times map[string]time.Duration

// Measure calls run with a writer for the output of Command, and returns the times of the pieces.
// It calls done after each piece. A piece that failed is missing in the times, and done gets its
// error.
func Measure(ctx context.Context, run func(context.Context, io.Writer) error, done func(piece string, took time.Duration, err error)) (Times, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	r, w := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := run(ctx, w)
		w.CloseWithError(err) // io.EOF for the reader if nil
		ran <- err
	}()
	times, err := read(r, done)
	r.CloseWithError(err) // ends the writer
	if err := errors.Join(err, <-ran); err != nil {
		return nil, err
	}
	return times, nil
}

func read(r io.Reader, done func(string, time.Duration, error)) (Times, error) {
	times, seen, sum := Times{}, 0, time.Duration(0)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		piece, took, err := parse(lines.Text())
		if piece == "" {
			return nil, err
		}
		seen++
		if done(piece, took, err); err == nil {
			times[piece] = took
			sum += took
		}
	}
	if lines.Err() != nil {
		return nil, nil // the error of the command, which its caller has
	}
	if seen != len(Pieces()) {
		return nil, fmt.Errorf("the work printed %d times, not %d", seen, len(Pieces()))
	}
	if len(times) == seen {
		times[All] = sum
	}
	return times, nil
}

// parse reads a line of the script. Without a piece, the line is none of the script's.
func parse(line string) (piece string, took time.Duration, err error) {
	fields := strings.Fields(line)
	if len(fields) != 3 || !slices.Contains(Pieces(), fields[0]) {
		return "", 0, fmt.Errorf("the work printed %.200q", line)
	}
	micros, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || micros < 0 {
		return "", 0, fmt.Errorf("the work printed %.200q", line)
	}
	const timedOut = "124"
	switch fields[2] {
	case "0":
	case timedOut:
		err = fmt.Errorf("it was ended after %s", pieceLimit)
	default:
		err = fmt.Errorf("it ended with exit code %s", fields[2])
	}
	return fields[0], time.Duration(micros) * time.Microsecond, err
}
