package console

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"ramet.dev/ramet/api"
)

func TestParseDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ctrl-p,ctrl-q": "\x10\x11", "a": "a", "ctrl-@": "\x00", "ctrl-[,x": "\x1bx", "ctrl-\\": "\x1c", "ctrl-^,ctrl-_,ctrl-]": "\x1e\x1f\x1d", "~,.": "~.",
	} {
		if got, err := ParseDetachKeys(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, bad := range []string{"ctrl-", "ctrl-1", "ctrl-pp", "ab", ",", "a,", "é", " ", "\x01"} {
		if got, err := ParseDetachKeys(bad); api.CodeOf(err) != api.CodeInvalid || err == nil {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// TestDetachReader looks for keys in input that comes in whole and byte by byte.
func TestDetachReader(t *testing.T) {
	for _, c := range []struct {
		keys, in, out string
		detached      bool
	}{
		{"\x10\x11", "plain", "plain", false},
		{"\x10\x11", "a\x10b", "a\x10b", false},
		{"\x10\x11", "a\x10\x11b", "a", true},
		{"\x10\x11", "a\x10\x10\x11b", "a\x10", true},
		{"\x10\x11", "\x11\x10", "\x11\x10", false},
		{"\x10\x11", "\x10\x11", "", true},
		{"\x10", "ab\x10c", "ab", true},
		{"", "a\x10\x11b", "a\x10\x11b", false},
		{"aab", "xaaab", "xa", true},
	} {
		for name, in := range map[string]io.Reader{"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in))} {
			got, err := io.ReadAll(&detachReader{in: in, keys: []byte(c.keys)})
			if string(got) != c.out || errors.Is(err, ErrDetached) != c.detached || err != nil && !c.detached {
				t.Errorf("%q in %q, %s: %q, %v", c.keys, c.in, name, got, err)
			}
		}
	}
}

// TestTerminalInput: a terminal that is closed may look like the end of what is typed.
func TestTerminalInput(t *testing.T) {
	got, err := io.ReadAll(&detachReader{in: terminalInput{strings.NewReader("typed")}, keys: []byte("\x10")})
	if string(got) != "typed" || !errors.Is(err, errTerminalClosed) {
		t.Errorf("%q, %v", got, err)
	}
}
