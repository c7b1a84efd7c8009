package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"ramet.dev/ramet/api"
)

// ReadHidden asks for a line on the terminal that standard input is, and does not show it. Ctrl-C ends
// the question.
func (p *Printer) ReadHidden(prompt string) (text string, err error) {
	in, ok := p.In.(*os.File)
	if !ok || !IsTerminal(in) {
		return "", errors.New("standard input is no terminal")
	}
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", fmt.Errorf("read from the terminal: %w", err)
	}
	// The terminal's own mode would leave an interrupt to a signal, which ends no read.
	defer func() { err = errors.Join(err, term.Restore(int(in.Fd()), old)) }()
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, p.Err}, "")
	text, err = t.ReadPassword(prompt)
	if errors.Is(err, io.EOF) {
		return "", api.Errorf(api.CodeCanceled, "read from the terminal: %w", context.Canceled)
	}
	return text, err
}
