package sandbox_test

import (
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// TestExitCodesOfThoseWhoMayNot tells scripts apart that have to get another token.
func TestExitCodesOfThoseWhoMayNot(t *testing.T) {
	for code, want := range map[sandbox.Code]int{sandbox.CodeUnknownUser: 7, sandbox.CodeForbidden: 7, sandbox.CodePermission: 1, sandbox.CodeConflict: 4} {
		if got := code.ExitCode(); got != want {
			t.Errorf("%s ends with %d, not %d", code, got, want)
		}
	}
}
