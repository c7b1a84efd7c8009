package api

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Names of files in a sandbox may have any bytes, and strings of JSON may not. So what tells
// of a path, or of where a link points, has a second field beside it, Exact, which is there in
// JSON only, and only if the path is not UTF-8.

// ExactBytes returns what JSON cannot say of s as a string: nil if it can.
func ExactBytes(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// takeExact puts the bytes of a path that JSON had in another field where they belong.
func takeExact(path *string, exact *[]byte) {
	if *exact != nil {
		*path, *exact = string(*exact), nil
	}
}

// marshal is json.Marshal that leaves it to who encodes the whole to escape what HTML would
// act on.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
