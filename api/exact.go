package api

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Names of files in a sandbox may have any bytes, and strings of JSON may not. So a path, or
// the target of a link, has a second field beside it, Exact, which is in JSON only, and only if
// the path is not UTF-8.

// ExactBytes returns the bytes of s if JSON cannot have them in a string, else nil.
func ExactBytes(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// takeExact moves the bytes of a path from its second field to the path.
func takeExact(path *string, exact *[]byte) {
	if *exact != nil {
		*path, *exact = string(*exact), nil
	}
}

// marshal does the same as json.Marshal, without escapes for HTML: the encoder of the whole
// document adds them.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
