package cli_test

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestSecretPrompt types a value, which is not shown, and interrupts the question.
func TestSecretPrompt(t *testing.T) {
	got := make(chan string, 2)
	socket := apitest.Serve(t, &apitest.Service{SecretFuncs: apitest.SecretFuncs{SetSecretFunc: func(_ context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
		got <- req.Value
		return &api.Secret{Name: name, SecretBinding: req.SecretBinding, CreatedAt: created, UpdatedAt: created}, nil
	}}})
	x := startOnTerminal(t, socket, terminalOptions{}, "secret", "set", "KEY", "--for", "a.example.org")
	x.sees("^value of KEY:")
	x.types("sk-typed\r")
	x.ends(0)
	if value := <-got; value != "sk-typed" || strings.Contains(x.bytes(), "typed") {
		t.Errorf("the value is %q, and the terminal shows %q", value, x.bytes())
	}
	x = startOnTerminal(t, socket, terminalOptions{}, "secret", "set", "KEY", "--for", "a.example.org")
	x.sees("^value of KEY:")
	x.types("sk\x03")
	x.ends(130)
	if len(got) > 0 {
		t.Errorf("after an interrupt it is set to %q", <-got)
	}
}
