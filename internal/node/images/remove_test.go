package images

import "testing"

func TestShortList(t *testing.T) {
	for want, list := range map[string][]string{"a": {"a"}, "a, b, c, d, e": {"a", "b", "c", "d", "e"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := shortList(list); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
