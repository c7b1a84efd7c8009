package codectx

import (
	"testing"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Contexts{}, &codeContext{}, &interpreter{}}, "head", "kind", "run", "left")
}
