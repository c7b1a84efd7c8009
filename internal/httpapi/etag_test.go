package httpapi

import (
	"strings"
	"testing"
)

func FuzzETags(f *testing.F) {
	f.Add(`"a", W/"b"`)
	f.Add("*")
	f.Add(strings.Repeat(`"x",`, 101))
	f.Fuzz(func(t *testing.T, header string) {
		tags, err := parseETags(header)
		if (err == nil) == (len(tags) == 0) || len(tags) > 100 {
			t.Errorf("%q: %q, %v", header, tags, err)
		}
		for _, tag := range tags {
			if !strings.Contains(header, strings.TrimPrefix(tag, weak)) || strings.ContainsAny(tag, "\" \t\r\n\x00") {
				t.Errorf("%q has %q", header, tag)
			}
		}
	})
}
