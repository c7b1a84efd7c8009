package guest

import (
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

// See canary_test.go of package cow for what this is.

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&randomness{}})
}

func TestLimitedBuffer(t *testing.T) {
	b := &limitedBuffer{max: 10}
	for _, s := range []string{"hello ", "world", "!", strings.Repeat("x", 100)} {
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
	if b.String() != "hello worl" {
		t.Errorf("it kept %q", b.String())
	}
}

func TestCanaryClockPage(t *testing.T) {
	if f, ok := reflect.TypeFor[kernel.Kernel]().FieldByName("vdsoParams"); !ok || f.Type != reflect.TypeFor[*kernel.VDSOParamPage]() {
		t.Error("a kernel has no field vdsoParams of type *VDSOParamPage any more: clockPage finds it there")
	}
}
