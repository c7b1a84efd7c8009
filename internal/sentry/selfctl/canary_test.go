package selfctl

import (
	"testing"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Controller{}, &conn{}, &endpoint{}})
}
