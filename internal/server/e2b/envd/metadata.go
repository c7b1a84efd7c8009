package envd

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// Clients give files metadata by headers of uploads. It is kept in extended attributes.
const (
	metadataHeader = "X-Metadata-"
	metadataPrefix = "user.e2b."
	maxMetadata    = 4096 // bytes of names, as attributes have them, and values of a file
	maxAttribute   = 255  // bytes of the name of an attribute
)

// metadataIn returns the extended attributes that the headers of an upload ask for. The first header of a name counts.
func metadataIn(h http.Header) (map[string]string, error) {
	attributes, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok || key == "" || len(h[name]) == 0 {
			continue
		}
		key, value := metadataPrefix+strings.ToLower(key), h[name][0]
		if !printable(key) || !printable(value) || len(key) > maxAttribute {
			return nil, api.Invalid("metadata", "%.60q is not a key and value of printable ASCII, or the key is longer than %d bytes", key, maxAttribute-len(metadataPrefix))
		}
		if size += len(key) + len(value); size > maxMetadata {
			return nil, api.Invalid("metadata", "a file has at most %d bytes of it", maxMetadata)
		}
		attributes[key] = value
	}
	return attributes, nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// metadataOf returns the metadata of a file; nil if it has none.
func metadataOf(f *api.FileInfo) map[string]string {
	var out map[string]string
	for name, value := range f.Xattrs {
		if key, ok := strings.CutPrefix(name, metadataPrefix); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}
