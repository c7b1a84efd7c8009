package httpwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

func TestProblemKeepsTheErrorAcrossTheWire(t *testing.T) {
	for code, status := range map[api.Code]int{
		api.CodeInvalid: 400, api.CodeNotFound: 404, api.CodeNameTaken: 409, api.CodeConflict: 409,
		api.CodeWrongState: 409, api.CodeLimit: 429, api.CodeNoMemory: 507, api.CodeNoSpace: 507,
		api.CodeIsolation: 422, api.CodePermission: 403, api.CodeTimeout: 504, api.CodeCanceled: 499, api.CodeSandboxDied: 409,
		api.CodeHostile: 422, api.CodeCorrupt: 422, api.CodeUnavailable: 503, api.CodeUnsupported: 422,
		api.CodeInternal: 500,
	} {
		err := api.Errorf(code, "it broke")
		err.Field = "name"
		doc, jerr := json.Marshal(NewProblem(fmt.Errorf("wrapped: %w", err)))
		if jerr != nil {
			t.Fatal(jerr)
		}
		var p *Problem
		if jerr := json.Unmarshal(doc, &p); jerr != nil {
			t.Fatal(jerr)
		}
		var back *api.Error
		if !errors.As(error(p), &back) {
			t.Fatalf("%s: no sandbox.Error in %s", code, doc)
		}
		if back.Code != code || back.Field != "name" || p.Status != status || !strings.Contains(back.Detail, "wrapped: ") {
			t.Errorf("%s came back as %+v of %s", code, back, doc)
		}
	}
}

func TestNewProblemKeepsAProblem(t *testing.T) {
	p := NewStatusProblem(413, "too large")
	if got := NewProblem(fmt.Errorf("call: %w", p)); got != p || got.Status != 413 || got.Title != "Request Entity Too Large" {
		t.Errorf("NewProblem = %+v", got)
	}
}

func TestInternalProblemNamesTheRequest(t *testing.T) {
	p := NewProblem(errors.New("x"))
	p.RequestID = "req_1"
	if got := p.Error(); got != "x (request req_1)" {
		t.Errorf("Error = %q", got)
	}
}

func TestChunkRoundTrip(t *testing.T) {
	for _, b := range []string{"", "plain\n", "ünï", "\xff\x00\xfe", "half \xc3", strings.Repeat("\x01", MaxChunk)} {
		c := NewChunk([]byte(b), 3, time.Unix(1, 0))
		got, err := c.Bytes()
		if err != nil || string(got) != b {
			t.Errorf("%q came back as %q, %v (%s)", b, got, err, c.Encoding)
		}
	}
	for _, c := range []Chunk{{Encoding: "rot13"}, {Encoding: "base64", Data: "!"}} {
		if _, err := c.Bytes(); err == nil {
			t.Errorf("%+v decodes", c)
		}
	}
}

func TestEventRoundTrip(t *testing.T) {
	largest := NewChunk(bytes.Repeat([]byte{1}, MaxChunk), 1, time.Unix(1, 0))
	var wire []byte
	for name, v := range map[string]any{EventStdout: largest} {
		var err error
		if wire, err = AppendEvent(wire, name, "7", v); err != nil {
			t.Fatal(err)
		}
	}
	r := NewEventReader(bytes.NewReader(wire))
	ev, err := r.Next()
	if err != nil || ev.Name != EventStdout {
		t.Fatalf("Next = %q, %v", ev.Name, err)
	}
	var back Chunk
	if err := json.Unmarshal(ev.Data, &back); err != nil || !back.TS.Equal(largest.TS) || back.Data != largest.Data {
		t.Errorf("chunk differs: %v", err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last event: %v", err)
	}
}

func TestEventReader(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []Event
		err      error
	}{
		{"empty", "", nil, io.EOF},
		{"comments, blank lines and CRLF", ": hi\r\n\r\n\nevent: a\r\ndata: 1\r\n\r\n", []Event{{"a", []byte("1")}}, io.EOF},
		{"several data lines", "data: 1\ndata:2\n\n", []Event{{"", []byte("1\n2")}}, io.EOF},
		{"unknown fields", "id: 7\nretry: 1\nevent: a\n\n", []Event{{"a", nil}}, io.EOF},
		{"cut in a line", "event: a\nda", nil, io.ErrUnexpectedEOF},
		{"cut in an event", "event: a\ndata: 1\n", nil, io.ErrUnexpectedEOF},
		{"endless line", "data: " + strings.Repeat("x", maxEvent+1), nil, errEventTooLong},
		{"endless event", strings.Repeat("data: xxxxxxxxxxxxxxxx\n", maxEvent/16), nil, errEventTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewEventReader(strings.NewReader(c.in))
			var got []Event
			for {
				ev, err := r.Next()
				if err != nil {
					if err != c.err {
						t.Errorf("error = %v, want %v", err, c.err)
					}
					break
				}
				got = append(got, ev)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("events = %q, want %q", got, c.want)
			}
		})
	}
}

func TestParseFrame(t *testing.T) {
	s, p, err := ParseFrame(AppendFrame(nil, StreamStderr, []byte("x")))
	if s != StreamStderr || string(p) != "x" || err != nil {
		t.Errorf("ParseFrame = %d, %q, %v", s, p, err)
	}
	if s, p, err := ParseFrame([]byte{0}); s != StreamStdin || len(p) != 0 || err != nil {
		t.Errorf("end of input = %d, %q, %v", s, p, err)
	}
	for _, bad := range []string{"", "\x03x", "\xff"} {
		if _, _, err := ParseFrame([]byte(bad)); err == nil {
			t.Errorf("%q parses", bad)
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"argv":["a"]}`: true, ` {"argv":["a"]} `: true,
		`{"argv":["\ud83d\ude00"]}`: true, `{"argv":["\\\\udcff"]}`: true, "{\"argv\":[\"\ufffd\"]}": true, `{"argv":["\ufffd\n"]}`: true,
		"{\"argv\":[\"\xff\"]}": false, `{"argv":["\udcff"]}`: false, `{"argv":["\ud83d"]}`: false, `{"argv":["\ud83d\ud83d\ude00"]}`: false,
		``: false, `{`: false, `{"argv":"a"}`: false, `{"nope":1}`: false, `{} {}`: false, `{}x`: false, `[]`: false,
	} {
		var req api.ExecRequest
		if err := DecodeStrict([]byte(in), &req); (err == nil) != ok {
			t.Errorf("DecodeStrict(%q) = %v, want ok=%v", in, err, ok)
		}
	}
}

func TestCheckTextSaysWhere(t *testing.T) {
	for in, want := range map[string]string{
		"[\"a\xe9b\"]":        "byte 4 is 0xe9, which is not UTF-8",
		`["\n","\uDCFF"]`:     `\uDCFF at byte 8 is half a character`,
		`["\ud83d\n"]`:        `\ud83d at byte 3 is half a character`,
		`["\ud83d\ude00\`:     "<nil>",
		`"\u12`:               "<nil>", // which is no JSON, and for others to say
		"\"\\ud83d\xe2\x82\"": "byte 8 is 0xe2, which is not UTF-8",
	} {
		if got := fmt.Sprint(CheckText([]byte(in))); got != want {
			t.Errorf("CheckText(%q) = %s, want %s", in, got, want)
		}
	}
}

// What passes is what encoding/json takes to mean what it says.
func FuzzCheckText(f *testing.F) {
	for _, seed := range []string{`"\ud83d\ude00"`, `"\\\\udcff"`, `"\ufffd"`, "\"\xff\"", `"\ud83d\n"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var s string
		if json.Unmarshal(in, &s) != nil {
			return
		}
		meant := bytes.Count(bytes.ToLower(in), []byte(`\ufffd`)) + bytes.Count(in, []byte("\ufffd"))
		replaced := strings.Count(s, "\ufffd") > meant
		if err := CheckText(in); replaced && err == nil {
			t.Fatalf("%q became %q", in, s)
		} else if err != nil && !strings.Contains(s, "\ufffd") {
			t.Fatalf("%q: %v, and it is %q", in, err, s)
		}
	})
}

func FuzzEventReader(f *testing.F) {
	f.Add([]byte("event: stdout\ndata: {\"data\":\"x\",\"encoding\":\"utf8\",\"seq\":1}\n\n"))
	f.Add([]byte(":\n\ndata\ndata:\n\r\n\n"))
	f.Add([]byte("event: exit\ndata: {}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewEventReader(bytes.NewReader(in))
		total := 0
		for {
			ev, err := r.Next()
			if err != nil {
				return
			}
			if total += len(ev.Name) + len(ev.Data); total > len(in) {
				t.Fatalf("%d bytes of events from %d bytes", total, len(in))
			}
			var c Chunk
			if json.Unmarshal(ev.Data, &c) == nil {
				if b, err := c.Bytes(); err == nil && len(b) > len(c.Data) {
					t.Fatalf("chunk grew from %d to %d bytes", len(c.Data), len(b))
				}
			}
		}
	})
}

func TestControlCharactersAreBase64(t *testing.T) {
	for in, want := range map[string]string{"text\n\ttext\r\n": "utf8", strings.Repeat("\x00", 100): "base64", strings.Repeat("a", 99) + "\x1b": "utf8"} {
		if c := NewChunk([]byte(in), 0, time.Unix(1, 0)); c.Encoding != want {
			t.Errorf("%q is %s, not %s", in, c.Encoding, want)
		}
	}
}

func TestFrames(t *testing.T) {
	var b []byte
	b = AppendStreamFrame(b, StreamStdout, []byte("out\xff"))
	b = AppendStreamFrame(b, StreamStderr, nil)
	b = AppendStreamFrame(b, StreamStdout, bytes.Repeat([]byte{0}, MaxChunk))
	whole := AppendStreamFrame(slices.Clone(b), StreamFinal, []byte(`{"exit":{"exit_code":3}}`))
	in := NewFrameReader(bytes.NewReader(whole))
	for i, want := range []struct {
		s Stream
		n int
	}{{StreamStdout, 4}, {StreamStderr, 0}, {StreamStdout, MaxChunk}} {
		s, p, final, err := in.Next()
		if err != nil || s != want.s || len(p) != want.n || final != nil {
			t.Fatalf("frame %d: stream %d, %d bytes, %+v, %v", i, s, len(p), final, err)
		}
	}
	if _, _, final, err := in.Next(); err != nil || final == nil || final.Exit == nil || final.Exit.ExitCode != 3 {
		t.Fatalf("last frame: %+v, %v", final, err)
	}
	for name, bad := range map[string][]byte{
		"no stream":  AppendStreamFrame(nil, 4, nil),
		"input":      AppendStreamFrame(nil, StreamStdin, nil),
		"too long":   AppendStreamFrame(nil, StreamStdout, make([]byte, MaxChunk+1)),
		"no result":  AppendStreamFrame(nil, StreamFinal, []byte(`{}`)),
		"no JSON":    AppendStreamFrame(nil, StreamFinal, []byte(`{`)),
		"long final": binary.BigEndian.AppendUint32([]byte{byte(StreamFinal)}, math.MaxUint32),
	} {
		if _, _, _, err := NewFrameReader(bytes.NewReader(bad)).Next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for cut := range frameHeader + 4 {
		if _, _, _, err := NewFrameReader(bytes.NewReader(whole[:cut])).Next(); err != io.ErrUnexpectedEOF {
			t.Errorf("cut off after %d bytes: %v", cut, err)
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add(AppendStreamFrame(AppendStreamFrame(nil, StreamStdout, []byte("a")), StreamFinal, []byte(`{"exit":{}}`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		for in := NewFrameReader(bytes.NewReader(b)); ; {
			s, p, final, err := in.Next()
			if err != nil || final != nil {
				break
			}
			again = AppendStreamFrame(again, s, p)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("%q was read from %q", again, b)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00input"))
	f.Add([]byte{1})
	f.Add([]byte(`{"argv":["a"],"env":{"A":"b"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if s, p, err := ParseFrame(in); err == nil && !bytes.Equal(AppendFrame(nil, s, p), in) {
			t.Fatalf("frame %q changed", in)
		}
		var req api.ExecRequest
		if DecodeStrict(in, &req) == nil {
			out, err := json.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			var again api.ExecRequest
			if err := DecodeStrict(out, &again); err != nil {
				t.Fatalf("%s does not decode again: %v", out, err)
			}
		}
	})
}

// TestE2BKey is another form of the same secret.
func TestE2BKey(t *testing.T) {
	const secret = "ramet_bdthetswcwlfylosca5zpbp76z62c5m3r5vxe22vj4d5qbvicdsq"
	key := E2BKey(secret)
	if !regexp.MustCompile(`^e2b_[0-9a-f]{64}$`).MatchString(key) {
		t.Errorf("the key is %s", key)
	}
	for _, given := range []string{key, secret} {
		if got, err := SecretOfE2BKey(given); got != secret || err != nil {
			t.Errorf("%s: %s, %v", given, got, err)
		}
	}
	if _, err := SecretOfE2BKey("e2b_xyz"); err == nil {
		t.Error("a key that is not hexadecimal is taken")
	}
}
