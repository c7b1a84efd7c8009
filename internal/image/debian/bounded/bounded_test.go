package bounded

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/image/debian/fault"
)

func TestReader(t *testing.T) {
	for limit, fits := range map[int64]bool{9: false, 10: true, 11: true} {
		r := NewReader(context.Background(), "x", strings.NewReader("0123456789"), limit)
		data, err := ReadAll("x", r, 100)
		var e *fault.LimitError
		if fits && (err != nil || len(data) != 10) || !fits && !errors.As(err, &e) {
			t.Errorf("limit %d: %q, %v", limit, data, err)
		}
	}
}
