package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// cutWriter takes so many bytes, loses the rest of those that it is given with them, and
// fails, as the connection to a client does when the daemon ends.
type cutWriter struct {
	bytes.Buffer
	most int
	cut  func()
}

// Write implements io.Writer.
func (w *cutWriter) Write(p []byte) (int, error) {
	w.Buffer.Write(p[:min(len(p), w.most-w.Len())])
	if w.Len() == w.most {
		w.cut()
		return 0, errCut
	}
	return len(p), nil
}

var errCut = errors.New("cut off")

var errDaemonEnds = api.Errorf(api.CodeUnavailable, "the daemon ends")

// runCut runs a command with a key until it has written so many bytes and its caller is
// cut off for a reason.
func runCut(n *harness.Node, why error, key string, most int, args ...string) *cutWriter {
	n.T.Helper()
	ctx, cancel := context.WithCancelCause(harness.AsOwner)
	defer cancel(nil)
	out := &cutWriter{most: most, cut: func() { cancel(why) }}
	_, err := n.Machine.Exec(ctx, "box", api.ExecRequest{Argv: append([]string{"/bin/guest"}, args...), Key: key}, api.ExecIO{Stdout: out, Stderr: out})
	if !errors.Is(err, why) && !errors.Is(err, errCut) {
		n.T.Fatalf("exec that was cut off: %v", err)
	}
	return out
}

// resume comes back to a command.
func resume(n *harness.Node, key string, from int) (string, *api.ExecResult, error) {
	var out bytes.Buffer
	at := int64(from)
	res, err := n.Machine.Exec(harness.AsOwner, "box", api.ExecRequest{Argv: []string{"-"}, Key: key, From: &at}, api.ExecIO{Stdout: &out, Stderr: &out})
	return out.String(), res, err
}

// TestExecGoesOnThroughDaemons has daemons end under commands in the foreground. Their
// callers come back, once and again, and get all of the output once, and the exit code.
func TestExecGoesOnThroughDaemons(t *testing.T) {
	const key = "AAAAAAAAAAAAAAAAAAAA"
	n := harness.NewNode(t)
	n.Create("box")
	first := runCut(n, errDaemonEnds, key, 4, "say", "one", "sleep:1s", "two", "exit:7")
	n.Reopen()
	rest, res, err := resume(n, key, first.Len())
	if err != nil || first.String()+rest != "one\ntwo\n" || res.ExitCode != 7 {
		t.Errorf("wrote %q and %q, %+v, %v", first, rest, res, err)
	}
	if _, _, err := resume(n, key, 0); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("come back to what has ended: %v", err)
	}

	const size = 6_400_000
	for _, most := range []int{1, 100_000, 3_000_000} {
		key := fmt.Sprintf("%s%d", key, most)
		got := runCut(n, errDaemonEnds, key, most, "spew", fmt.Sprint(size))
		n.Reopen()
		rest, res, err := resume(n, key, got.Len())
		if err != nil || !res.OK {
			t.Fatalf("after %d bytes: %+v, %v", most, res, err)
		}
		whole := got.String() + rest
		if len(whole) != size {
			t.Errorf("after %d bytes: %d bytes in all, want %d", most, len(whole), size)
		}
		for i := 0; i+16 <= len(whole); i += 16 {
			if whole[i:i+16] != "0123456789abcde\n" {
				t.Fatalf("after %d bytes: %q at %d", most, whole[i:i+16], i)
			}
		}
	}
}

// TestExecEndsWithItsCaller cuts callers off who do not come back: their commands are
// killed.
func TestExecEndsWithItsCaller(t *testing.T) {
	const key = "BBBBBBBBBBBBBBBBBBBB"
	n := harness.NewNode(t)
	n.Create("box")
	runCut(n, errors.New("the client went away"), key, 4, "say", "one", "sleep:1000s")
	harness.Eventually(t, "end of the command", func() error {
		list, err := n.Machine.Processes(harness.AsOwner, "box", true)
		if err != nil || len(list) != 0 {
			return fmt.Errorf("%+v, %v", list, err)
		}
		return nil
	})
	if _, _, err := resume(n, key, 4); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("come back to what was ended: %v", err)
	}
}
