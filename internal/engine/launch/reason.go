package launch

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"ramet.dev/ramet/api"
)

// explain turns a process's end into an error that tells the reason.
func (p *process) explain(err error) error {
	if p.group != nil {
		if st, serr := p.group.Stats(); serr == nil && st.OOMKills > 0 {
			return api.Errorf(api.CodeNoMemory, "the sandbox ran out of its memory limit")
		}
	}
	if p.watch.Exceeded() {
		return api.Errorf(api.CodeNoMemory, "the sandbox ran out of its memory limit")
	}
	log, _ := readEnd(p.logPath(), 1<<20) // there may be none
	logCrash(p.logger, p.key, log)
	reason := "ended"
	if err != nil {
		reason = err.Error()
	}
	line := reasonIn(string(log))
	if word, ok := strings.CutPrefix(line, lastWord); ok {
		return api.Errorf(api.CodeSandboxDied, "%s", word)
	}
	if line != "" {
		reason += ": " + line
	}
	return api.Errorf(api.CodeSandboxDied, "sentry %s", reason)
}

// EndOfLog returns up to most bytes from the end of a sentry's log. The log is the sandbox's kernel's: what it warns of,
// and why it ended.
func EndOfLog(s *Sentry, most int64) ([]byte, error) { return readEnd(s.logPath(), most) }

// readEnd returns up to most bytes from the end of a file: a guest can make its
// sentry's log long.
func readEnd(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-most), most))
}

// lastWord begins the line with which a sentry says why it ends itself.
const lastWord = "sentry: "

// reasonIn returns the line of a sentry's log that says why it ended: the line of a panic,
// the line in which the sentry gives its reason, or just the last line.
func reasonIn(log string) string {
	const most = 500 // bytes, enough for any such line
	reason := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		switch {
		case isCrash(line), strings.HasPrefix(line, lastWord):
			return line[:min(len(line), most)]
		case line != "":
			reason = line
		}
	}
	return reason[:min(len(reason), most)]
}

// logCrash puts the stacks of a process that crashed, if it did, into the daemon's log.
// The log of the process is removed with it.
func logCrash(logger *slog.Logger, name string, log []byte) {
	if trace := crashIn(string(log)); trace != "" {
		logger.Error("sentry crashed", "sentry", name, "trace", trace)
	}
}

// crashIn returns the part of a sentry's log that begins with the line in which the Go
// runtime reports a crash, or "" without a crash. The stacks follow that line, first the
// stack of the goroutine that crashed.
func crashIn(log string) string {
	const most = 16 << 10 // bytes
	at := 0
	for line := range strings.Lines(log) {
		if isCrash(line) {
			return log[at:min(len(log), at+most)]
		}
		at += len(line)
	}
	return ""
}

func isCrash(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}
