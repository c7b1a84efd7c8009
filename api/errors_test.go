package api_test

import (
	"testing"

	"ramet.dev/ramet/api"
)

// TestExitCodesOfThoseWhoMayNot tells scripts apart that have to get another token.
func TestExitCodesOfThoseWhoMayNot(t *testing.T) {
	for code, want := range map[api.Code]int{api.CodeUnknownUser: 7, api.CodeForbidden: 7, api.CodePermission: 1, api.CodeConflict: 4} {
		if got := code.ExitCode(); got != want {
			t.Errorf("%s ends with %d, not %d", code, got, want)
		}
	}
}
