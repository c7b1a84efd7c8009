package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestOutputAndAttach reads the same output in both ways.
func TestOutputAndAttach(t *testing.T) {
	resized := make(chan api.TerminalSize, 4)
	c := connect(t, &apitest.Service{ProcessFuncs: apitest.ProcessFuncs{
		ResizeProcessFunc: func(_ context.Context, _ string, _ int, size api.TerminalSize) error {
			resized <- size
			return nil
		},
		AttachFunc: func(ctx context.Context, _ string, pid int, req api.AttachRequest, s api.AttachIO) (*api.Position, error) {
			if pid == 404 {
				return nil, api.NotFound("process", "404")
			}
			text := "output\xff"
			if s.Stdin != nil {
				var size api.TerminalSize
				select {
				case size = <-resized:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				in, err := io.ReadAll(s.Stdin)
				if err != nil {
					return nil, err
				}
				text += fmt.Sprintf("%s at %dx%d", in, size.Cols, size.Rows)
			}
			for _, c := range []api.Chunk{{Seq: 2, Lost: 3}, {Seq: 5, Data: []byte(text)}, {Seq: 50, Stderr: true, Data: []byte("e")}} {
				if err := s.Output(c); err != nil {
					return nil, err
				}
			}
			return &api.Position{NextSeq: req.From}, nil
		},
	}})
	var got strings.Builder
	each := func(c api.Chunk) error {
		fmt.Fprintf(&got, "%d %d %t %q\n", c.Seq, c.Lost, c.Stderr, c.Data)
		return nil
	}
	pos, err := c.Processes.Output(t.Context(), "x", 7, api.AttachRequest{From: 9}, each)
	if want := "2 3 false \"\"\n5 0 false \"output\\xff\"\n50 0 true \"e\"\n"; err != nil || got.String() != want || pos.NextSeq != 9 {
		t.Errorf("output %+v, %v: %s", pos, err, got.String())
	}
	got.Reset()
	sizes := make(chan api.TerminalSize, 1)
	sizes <- api.TerminalSize{Cols: 90, Rows: 20}
	pos, err = c.Processes.Attach(t.Context(), "x", 7, 9, api.AttachIO{Stdin: strings.NewReader("in"), Sizes: sizes, Output: each})
	if want := "2 3 false \"\"\n5 0 false \"output\\xffin at 90x20\"\n50 0 true \"e\"\n"; err != nil || got.String() != want || pos.NextSeq != 9 {
		t.Errorf("attach %+v, %v: %s", pos, err, got.String())
	}

	if _, err = c.Processes.Output(t.Context(), "x", 404, api.AttachRequest{}, each); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("output: %v", err)
	}
	if _, err = c.Processes.Attach(t.Context(), "x", 404, 0, api.AttachIO{Output: each}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("attach: %v", err)
	}
	full := errors.New("full")
	fail := func(api.Chunk) error { return full }
	if _, err = c.Processes.Output(t.Context(), "x", 7, api.AttachRequest{}, fail); !errors.Is(err, full) {
		t.Errorf("output: %v", err)
	}
	sizes <- api.TerminalSize{Cols: 1, Rows: 1}
	if _, err = c.Processes.Attach(t.Context(), "x", 7, 0, api.AttachIO{Stdin: strings.NewReader(""), Sizes: sizes, Output: fail}); !errors.Is(err, full) {
		t.Errorf("attach: %v", err)
	}
	broken := errors.New("broken")
	if _, err = c.Processes.Attach(t.Context(), "x", 7, 0, api.AttachIO{Stdin: failingReader{broken}, Sizes: sizes, Output: each}); !errors.Is(err, broken) {
		t.Errorf("attach: %v", err)
	}
}
