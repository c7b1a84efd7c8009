package client_test

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestWhatIsNotTextIsNotSent: JSON has no bytes that are not UTF-8, and others would
// stand in their place.
func TestWhatIsNotTextIsNotSent(t *testing.T) {
	var ran [][]string
	c := connect(t, &apitest.Service{
		ExecFunc: func(_ context.Context, _ string, req api.ExecRequest, _ api.ExecIO) (*api.ExecResult, error) {
			ran = append(ran, req.Argv)
			return &api.ExecResult{}, nil
		},
	})
	ctx := context.Background()
	exec := func(req api.ExecRequest) error {
		_, err := c.Processes.Exec(ctx, "a", req)
		return err
	}
	stream := func(in string) error {
		_, err := c.Processes.ExecStream(ctx, "a", api.ExecRequest{Argv: []string{"echo", "\xff"}}, api.ExecIO{Stdin: strings.NewReader(in)})
		return err
	}
	create := func(req api.CreateRequest) error {
		_, err := c.Sandboxes.Create(ctx, req)
		return err
	}
	name := "b\xe9"
	_, renamed := c.Sandboxes.Update(ctx, "a", api.UpdateRequest{Name: &name})
	for _, got := range []struct {
		err           error
		field, detail string
	}{
		{exec(api.ExecRequest{Argv: []string{"printf", "%s", "a\xff"}}), "argv", "byte 2 of number 3 is 0xff, which is not UTF-8: only text can be given here"},
		{exec(api.ExecRequest{Shell: "\x80"}), "shell", "byte 1 of it is 0x80"},
		{exec(api.ExecRequest{Shell: "x", Env: map[string]string{"K": "secret\xff"}}), "env", `byte 7 of the value of "K" is 0xff`},
		{exec(api.ExecRequest{Shell: "x", Env: map[string]string{"K\xc3": ""}}), "env", `byte 2 of the name "K\xc3" is 0xc3`},
		{stream("in"), "argv", "byte 1 of number 2 is 0xff"},
		{create(api.CreateRequest{Image: "a", Metadata: map[string]string{"k": "\xff"}}), "metadata", `byte 1 of the value of "k"`},
		{renamed, "name", "byte 2 of it is 0xe9"},
	} {
		e := api.AsError(got.err)
		if e == nil || e.Code != api.CodeInvalid || e.Field != got.field || !strings.HasPrefix(e.Detail, got.detail) || strings.Contains(e.Detail, "secret") {
			t.Errorf("%+v, not of %s: %s", e, got.field, got.detail)
		}
	}
	// The character that others would become is text like any other.
	if err := exec(api.ExecRequest{Argv: []string{"echo", "\ufffd", `\ufffd`}}); err != nil {
		t.Error(err)
	}
	if len(ran) != 1 || strings.Join(ran[0], " ") != "echo \ufffd \\ufffd" {
		t.Errorf("ran %q", ran)
	}
}
