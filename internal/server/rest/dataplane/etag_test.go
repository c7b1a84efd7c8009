package dataplane

import (
	"strings"
	"testing"
)

func FuzzETags(f *testing.F) {
	f.Add(`"a", W/"b"`)
	f.Add("*")
	f.Add(strings.Repeat(`"x",`, 101))
	f.Fuzz(func(t *testing.T, header string) {
		tags, err := parseETags("If-Match", header)
		if (err == nil) == (len(tags) == 0) || len(tags) > 100 {
			t.Errorf("%q: %v, %v", header, tags, err)
		}
		for _, tag := range tags {
			if !strings.Contains(header, tag.value) || strings.ContainsAny(tag.value, "\" \t\r\n\x00") || tag.any != (strings.Trim(header, " \t") == "*") {
				t.Errorf("%q has %v", header, tag)
			}
		}
	})
}
