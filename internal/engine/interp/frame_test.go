package interp_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
)

// frames takes a stream apart that comes in pieces of n bytes.
func frames(stream []byte, n int) (all []string, err error) {
	var s interp.Splitter
	var payload []byte
	for len(stream) > 0 {
		piece := stream[:min(n, len(stream))]
		stream = stream[len(piece):]
		for {
			part, rest, ok, err := s.Next(piece)
			if err != nil {
				return all, err
			}
			if !ok {
				break
			}
			piece = rest
			if payload = append(payload, part.Data...); part.Last {
				all = append(all, fmt.Sprintf("%c%d:%s", part.Kind, part.Run, payload))
				payload = nil
			}
			if len(piece) == 0 {
				break
			}
		}
	}
	return all, nil
}

func TestSplitter(t *testing.T) {
	stream := interp.AppendFrame(nil, interp.KindHello, 0, []byte("{}"))
	stream = interp.AppendFrame(stream, interp.KindResult, 7, bytes.Repeat([]byte("x"), 100))
	stream = interp.AppendFrame(stream, interp.KindDone, 0xffffffff, nil)
	want := fmt.Sprint([]string{"h0:{}", "m7:" + string(bytes.Repeat([]byte("x"), 100)), "d4294967295:"})
	for n := 1; n <= len(stream); n++ {
		got, err := frames(stream, n)
		if err != nil || fmt.Sprint(got) != want {
			t.Fatalf("in pieces of %d: %v, %v", n, got, err)
		}
	}
}

func TestSplitterRefuses(t *testing.T) {
	for _, head := range []string{
		"x 00000001 00000001\n", "d 00000001 0000000g\n", "d 00000001 00000001 ", "d-00000001 00000001\n", "d 0000000x 00000001\n",
		"m 00000001 00800001\n", "m 00000001 ffffffff\n", "Traceback (most recent",
	} {
		if got, err := frames([]byte(head), 3); !errors.Is(err, interp.ErrFrame) {
			t.Errorf("%q: %v, %v", head, got, err)
		}
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add(interp.AppendFrame(nil, interp.KindDone, 1, []byte(`{"exit_code":1}`)), 3)
	f.Add([]byte("m 00000001 00000000\nd 00000002 00000001\nx"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, n int) {
		whole, err := frames(stream, max(1, len(stream)))
		pieces, perr := frames(stream, max(1, n%64))
		if fmt.Sprint(whole) != fmt.Sprint(pieces) || (err == nil) != (perr == nil) {
			t.Errorf("whole: %v, %v; in pieces: %v, %v", whole, err, pieces, perr)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"exit_code":300,"result":"x","error":{"name":"E","value":"","traceback":""},"variables":[{"name":"a","size":-1}],"reseeded":["x"]}`))
	f.Add([]byte(`{"text/plain":"x"}`))
	f.Add([]byte(`{"handled":true,"generators":["random"]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if d, err := interp.ParseDone(payload); err == nil {
			if d.ExitCode < 0 || d.ExitCode > 255 || len(d.Variables) > 2000 || len(d.Reseeded) > 16 {
				t.Errorf("%+v", d)
			}
			for _, v := range d.Variables {
				if len(v.Name) > 300*4 || len(v.Repr) > 300*4 || v.Size < 0 {
					t.Errorf("%+v", v)
				}
			}
		}
		if r, err := interp.ParseRest(payload); err == nil && len(r.Generators) > 16 {
			t.Errorf("%+v", r)
		}
		_, _ = interp.ParseResult(payload)
		_, _ = interp.ParseHello(payload)
	})
}
