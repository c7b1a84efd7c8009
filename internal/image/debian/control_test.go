package debian

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readStanzas(text string, comments bool) ([]map[string]string, error) {
	r := newStanzaReader("test", strings.NewReader(text))
	r.comments = comments
	var out []map[string]string
	for {
		st, err := r.next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		m := map[string]string{}
		for _, f := range st.fields {
			m[string(f.name)] = st.get(string(f.name))
		}
		out = append(out, m)
	}
}

func TestStanzaReader(t *testing.T) {
	tests := []struct {
		name, text string
		comments   bool
		want       []map[string]string
	}{
		{name: "empty", text: ""},
		{name: "blank lines only", text: "\n \n\t\n"},
		{name: "no final newline", text: "A: 1", want: []map[string]string{{"A": "1"}}},
		{name: "two", text: "\n\nA: 1\nB:2\n\n \nA: 3\n", want: []map[string]string{{"A": "1", "B": "2"}, {"A": "3"}}},
		{name: "continued", text: "A: 1\n 2\n\t3\nB: x\n", want: []map[string]string{{"A": "1\n 2\n\t3", "B": "x"}}},
		{name: "empty first line", text: "A:\n 2\n", want: []map[string]string{{"A": "2"}}},
		{name: "colon in value", text: "A: b:c\n", want: []map[string]string{{"A": "b:c"}}},
		{name: "comments", comments: true, text: "# x\nA: 1\n# y\n 2\n#z", want: []map[string]string{{"A": "1\n 2"}}},
		{name: "carriage returns", text: "A: 1\r\n\r\nB: 2\r\n", want: []map[string]string{{"A": "1"}, {"B": "2"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readStanzas(tt.text, tt.comments)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestStanzaReaderRefuses(t *testing.T) {
	var bad *MalformedError
	for _, text := range []string{" continued\n", "no colon\n", ": no name\n", "A b: space in name\n"} {
		if _, err := readStanzas(text, false); !errors.As(err, &bad) {
			t.Errorf("%q: got %v, want a MalformedError", text, err)
		}
	}
	var limit *LimitError
	for name, text := range map[string]string{
		"long":        "A: " + strings.Repeat("x", maxStanza),
		"many lines":  strings.Repeat("A: "+strings.Repeat("x", 1000)+"\n", maxStanza/1000),
		"many fields": strings.Repeat("A: 1\n", maxFields+1),
	} {
		if _, err := readStanzas(text, false); !errors.As(err, &limit) {
			t.Errorf("%s: got %v, want a LimitError", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	for s, want := range map[string]bool{
		"libc6": true, "g++-12": true, "python3.11": true, "x": false, "": false, "Upper": false,
		"-x": false, "a/b": false, "a b": false, "a$(id)": false, "..": false, "a;b": false,
	} {
		if got := validPackageName(s); got != want {
			t.Errorf("validPackageName(%q) = %v", s, got)
		}
	}
	for s, want := range map[string]bool{"1:2.3-4~x+y": true, "": false, "1 2": false, "1/2": false, "1_2": false} {
		if got := validVersion(s); got != want {
			t.Errorf("validVersion(%q) = %v", s, got)
		}
	}
}

func FuzzStanzaReader(f *testing.F) {
	for _, s := range []string{"", "A: 1\nB: 2\n 3\n\nC: 4", "# c\nA:\n", "A:\n .\n", " x", "A: 1\n\n\n\n", "\r\n:", "A:\x00\n"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, comments bool) {
		r := newStanzaReader("fuzz", bytes.NewReader(data))
		r.comments = comments
		for {
			st, err := r.next()
			if err != nil {
				return
			}
			total := 0
			for _, fl := range st.fields {
				total += len(fl.name) + len(fl.value) + 1
				if len(fl.name) == 0 || bytes.ContainsAny(fl.name, " \t\n:") {
					t.Fatalf("field name %q", fl.name)
				}
				if bytes.Contains(fl.value, []byte("\n\n")) {
					t.Fatalf("value of %q holds an empty line: %q", fl.name, fl.value)
				}
			}
			if len(st.fields) == 0 || total > len(data)+1 {
				t.Fatalf("%d fields of %d bytes from %d bytes", len(st.fields), total, len(data))
			}
			if !comments {
				// Written out again, the stanza must read the same.
				again, err := parseStanza("again", st.raw)
				if err != nil || len(again.fields) != len(st.fields) {
					t.Fatalf("second reading: %v", err)
				}
			}
		}
	})
}
