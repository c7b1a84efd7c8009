package restapi

import (
	"path/filepath"
	"testing"
)

// Linters find neither errors nor warnings, but for rules that their configurations argue
// away.
func TestTheDocumentIsClean(t *testing.T) {
	bin := node(t)
	doc := theDaemon(t).document(t)
	dir := filepath.Dir(doc)
	t.Run("redocly", func(t *testing.T) {
		run(t, dir, []string{"REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true"}, filepath.Join(bin, "redocly"), "lint", doc, "--config", testdata(t, "redocly.yaml"))
	})
	t.Run("spectral", func(t *testing.T) {
		run(t, dir, nil, filepath.Join(bin, "spectral"), "lint", doc, "--ruleset", testdata(t, "spectral.yaml"), "--fail-severity", "hint")
	})
}
