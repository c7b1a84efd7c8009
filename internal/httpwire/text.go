package httpwire

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// CheckText refuses a JSON document that has bytes that are not UTF-8, or half of a surrogate
// pair. encoding/json would take both for U+FFFD, so
// something else would be done than was asked for.
func CheckText(doc []byte) error {
	if !utf8.Valid(doc) {
		at := NotUTF8(string(doc))
		return fmt.Errorf("byte %d is 0x%02x, which is not UTF-8", at+1, doc[at])
	}
	for at := bytes.IndexByte(doc, '\\'); at >= 0; {
		next := at + 2 // behind what is escaped, which may be a backslash
		if first := escapedUnit(doc[at:]); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, escapedUnit(doc[at+escapeLength:])) == utf8.RuneError {
				return fmt.Errorf("%s at byte %d is half a character", doc[at:at+escapeLength], at+1)
			}
			next = at + 2*escapeLength
		}
		more := bytes.IndexByte(doc[min(next, len(doc)):], '\\')
		if more < 0 {
			break
		}
		at = next + more
	}
	return nil
}

// escapeLength is that of an escape by number: a backslash, u and four digits.
const escapeLength = 6

// escapedUnit returns the UTF-16 unit that doc begins with as an escape, or -1.
func escapedUnit(doc []byte) rune {
	if len(doc) < escapeLength || doc[0] != '\\' || doc[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(doc[2:escapeLength]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// NotUTF8 returns where the first byte of s is that is not part of UTF-8, or -1.
func NotUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for at, r := range s {
		if _, size := utf8.DecodeRuneInString(s[at:]); r == utf8.RuneError && size == 1 {
			return at
		}
	}
	return -1
}
