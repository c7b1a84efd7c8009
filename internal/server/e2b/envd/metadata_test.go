package envd

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestMetadata is that of headers, within bounds.
func TestMetadata(t *testing.T) {
	h := http.Header{}
	h.Add("x-metadata-Author", "mish")
	h.Add("X-Metadata-Author", "another")
	h.Set("X-Metadata-a.b", "")
	h.Set("X-Metadata-", "no key")
	h.Set("X-Other", "x")
	got, err := metadataIn(h)
	if err != nil || !maps.Equal(got, map[string]string{"user.e2b.author": "mish", "user.e2b.a.b": ""}) {
		t.Errorf("%v, %v", got, err)
	}
	if back := metadataOf(&api.FileInfo{Xattrs: got}); !maps.Equal(back, map[string]string{"author": "mish", "a.b": ""}) {
		t.Errorf("read back: %v", back)
	}
	for name, value := range map[string]string{"X-Metadata-A": "ü", "X-Metadata-" + strings.Repeat("k", 247): "v", "X-Metadata-B": strings.Repeat("v", 4097), "X-Metadata-C": "\x01"} {
		if _, err := metadataIn(http.Header{name: {value}}); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%.20s: %v", name, err)
		}
	}
}
