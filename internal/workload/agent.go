package workload

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// The parts of a warm sandbox, for callers that start them by other means.
const (
	// AgentPath is the program of the warm process. Its argument is Port.
	AgentPath = "/root/agent.py"
	// AskPath is a command that asks the warm process. Its argument is Port.
	AskPath = "/root/ask"
	// Port is the port of the warm process on the loopback address.
	Port = 8000
)

// startTimeout bounds the start of the agent, which takes seconds on a busy machine.
const startTimeout = 60 * time.Second

var (
	//go:embed guest/agent.py
	agentProgram string
	//go:embed guest/ask.sh
	askScript string
	//go:embed guest/start.sh
	startScript string
)

// Files returns the files of a warm sandbox, by path: AgentPath and AskPath.
func Files() map[string]string {
	return map[string]string{AgentPath: agentProgram, AskPath: askScript}
}

// Warm starts the agent in a sandbox. When it returns, the process has loaded numpy and listens.
// The image needs bash, python3 and numpy.
func (s *Session) Warm(ctx context.Context, ref string) error {
	for path, text := range Files() {
		if err := s.WriteFile(ctx, ref, path, text); err != nil {
			return err
		}
	}
	_, err := s.run(ctx, ref, api.ExecRequest{
		Argv: []string{"/bin/sh", "-c", startScript, "start", strconv.Itoa(Port)}, TimeoutMS: startTimeout.Milliseconds(),
	})
	if err != nil {
		return fmt.Errorf("start the warm process: %w", err)
	}
	return nil
}

// WriteFile makes an executable file in a sandbox.
func (s *Session) WriteFile(ctx context.Context, ref, path, text string) error {
	_, err := s.run(ctx, ref, api.ExecRequest{Argv: []string{"/bin/sh", "-c", `cat >"$1" && chmod 755 "$1"`, "write", path}, Stdin: text})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Ask runs a program in the warm process of a sandbox and returns its output without the last end
// of line. The request is made inside the sandbox, over its loopback network.
func (s *Session) Ask(ctx context.Context, ref, program string) (string, error) {
	out, err := s.run(ctx, ref, api.ExecRequest{Argv: []string{AskPath, strconv.Itoa(Port)}, Stdin: program})
	if err != nil {
		return "", fmt.Errorf("ask the warm process of %s: %w", ref, err)
	}
	return strings.TrimSuffix(out, "\n"), nil
}

// Shell runs a command line in a sandbox and returns its output.
func (s *Session) Shell(ctx context.Context, ref, command string) (string, error) {
	return s.run(ctx, ref, api.ExecRequest{Shell: command})
}

// run runs a command that must succeed.
func (s *Session) run(ctx context.Context, ref string, req api.ExecRequest) (string, error) {
	res, err := s.c.Processes.Exec(ctx, ref, req)
	if err != nil {
		return "", err
	}
	switch {
	case res.TimedOut:
		return "", fmt.Errorf("the command was not done in %d ms", req.TimeoutMS)
	case !res.OK:
		return "", fmt.Errorf("the command ended with exit code %d: %s", res.ExitCode, lastLine(res.Stdout+res.Stderr))
	}
	return res.Stdout, nil
}

// lastLine returns the last line, in which programs report their error.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
