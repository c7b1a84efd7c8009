package deb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/image/debian/fault"
)

// arMember returns one member with its header and padding.
func arMember(name string, data []byte) []byte {
	out := fmt.Appendf(nil, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", name, 0, 0, 0, 0o100644, len(data))
	out = append(out, data...)
	if len(data)%2 == 1 {
		out = append(out, '\n')
	}
	return out
}

func readAr(data []byte) (string, error) {
	r, err := newArReader("test", bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		name, size, err := r.next()
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return out.String(), err
		}
		if name == "skip" {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return out.String(), err
		}
		if int64(len(body)) != size {
			return "", fmt.Errorf("member of %d bytes gave %d", size, len(body))
		}
		fmt.Fprintf(&out, "%s=%s;", name, body)
	}
}

func TestArReader(t *testing.T) {
	whole := []byte(arMagic)
	whole = append(whole, arMember("one", []byte("abc"))...)
	whole = append(whole, arMember("skip", []byte("xxxxx"))...)
	whole = append(whole, arMember("two/", []byte("defg"))...)
	whole = append(whole, arMember("empty", nil)...)
	whole = append(whole, arMember("odd", []byte("h"))...)
	const want = "one=abc;two=defg;empty=;odd=h;"
	for _, data := range [][]byte{whole, whole[:len(whole)-1]} { // with and without the last padding
		got, err := readAr(data)
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestArReaderRefuses(t *testing.T) {
	good := append([]byte(arMagic), arMember("one", []byte("abcd"))...)
	edit := func(at int, with string) []byte {
		return append(append(append([]byte{}, good[:at]...), with...), good[at+len(with):]...)
	}
	for name, data := range map[string][]byte{
		"empty":               nil,
		"other magic":         []byte("!<arcx>\n"),
		"short header":        good[:len(arMagic)+30],
		"short body":          good[:len(good)-1],
		"bad end of header":   edit(len(arMagic)+58, "xx"),
		"negative size":       edit(len(arMagic)+48, "-4        "),
		"size is no number":   edit(len(arMagic)+48, "4x        "),
		"size beyond the end": edit(len(arMagic)+48, "9999999999"),
		"no name":             edit(len(arMagic), strings.Repeat(" ", 16)),
	} {
		var bad *fault.MalformedError
		if got, err := readAr(data); !errors.As(err, &bad) {
			t.Errorf("%s: got %q, %v, want a MalformedError", name, got, err)
		}
	}
}

func FuzzArReader(f *testing.F) {
	f.Add([]byte(arMagic))
	f.Add(append([]byte(arMagic), arMember("debian-binary", []byte("2.0\n"))...))
	f.Add(append([]byte(arMagic), arMember("odd", []byte("x"))...))
	f.Add(append([]byte(arMagic), arMember("odd", []byte("x"))[:40]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := newArReader("fuzz", bytes.NewReader(data))
		if err != nil {
			return
		}
		var total int64
		for {
			_, size, err := r.next()
			if err != nil {
				return
			}
			n, err := io.Copy(io.Discard, r)
			if total += n + arHeaderLen; total > int64(len(data)) {
				t.Fatalf("%d bytes came out of %d", total, len(data))
			}
			if err == nil && n != size {
				t.Fatalf("member of %d bytes gave %d without an error", size, n)
			}
		}
	})
}
