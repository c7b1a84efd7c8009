package control

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/internal/image/debian/fault"
)

func readStanzas(text string, comments bool) ([]map[string]string, error) {
	r := NewReader("test", strings.NewReader(text))
	r.Comments = comments
	var out []map[string]string
	for {
		st, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		m := map[string]string{}
		for _, f := range st.Fields {
			m[string(f.Name)] = st.Get(string(f.Name))
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
	var bad *fault.MalformedError
	for _, text := range []string{" continued\n", "no colon\n", ": no name\n", "A b: space in name\n"} {
		if _, err := readStanzas(text, false); !errors.As(err, &bad) {
			t.Errorf("%q: got %v, want a MalformedError", text, err)
		}
	}
	var limit *fault.LimitError
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
		if got := ValidName(s); got != want {
			t.Errorf("ValidName(%q) = %v", s, got)
		}
	}
	for s, want := range map[string]bool{"1:2.3-4~x+y": true, "": false, "1 2": false, "1/2": false, "1_2": false} {
		if got := ValidVersion(s); got != want {
			t.Errorf("ValidVersion(%q) = %v", s, got)
		}
	}
}

func FuzzStanzaReader(f *testing.F) {
	for _, s := range []string{"", "A: 1\nB: 2\n 3\n\nC: 4", "# c\nA:\n", "A:\n .\n", " x", "A: 1\n\n\n\n", "\r\n:", "A:\x00\n"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, comments bool) {
		r := NewReader("fuzz", bytes.NewReader(data))
		r.Comments = comments
		for {
			st, err := r.Next()
			if err != nil {
				return
			}
			total := 0
			for _, fl := range st.Fields {
				total += len(fl.Name) + len(fl.Value) + 1
				if len(fl.Name) == 0 || bytes.ContainsAny(fl.Name, " \t\n:") {
					t.Fatalf("field name %q", fl.Name)
				}
				if bytes.Contains(fl.Value, []byte("\n\n")) {
					t.Fatalf("value of %q holds an empty line: %q", fl.Name, fl.Value)
				}
			}
			if len(st.Fields) == 0 || total > len(data)+1 {
				t.Fatalf("%d fields of %d bytes from %d bytes", len(st.Fields), total, len(data))
			}
			if !comments {
				// Written out again, the stanza must read the same.
				again, err := Parse("again", st.Raw)
				if err != nil || len(again.Fields) != len(st.Fields) {
					t.Fatalf("second reading: %v", err)
				}
			}
		}
	})
}
