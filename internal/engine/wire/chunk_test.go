package wire

import (
	"bytes"
	"reflect"
	"testing"
)

func TestChunkRoundTrip(t *testing.T) {
	for _, c := range []Chunk{
		{Stream: Stdout, Seq: 7, Time: 1e18, Data: []byte("out")},
		{Stream: Stderr, Time: -1, Data: []byte{0, 0xff}},
		{Seq: 1 << 40, Lost: 12},
	} {
		got, err := ParseChunk(AppendChunk(nil, c))
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v came back as %+v, %v", c, got, err)
		}
	}
}

func FuzzParseChunk(f *testing.F) {
	f.Add(AppendChunk(nil, Chunk{Stream: Stdout, Seq: 7, Time: 8, Data: []byte("x")}))
	f.Add(AppendChunk(nil, Chunk{Seq: 7, Lost: 8}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseChunk(b); err == nil && !bytes.Equal(AppendChunk(nil, c), b) {
			t.Fatalf("%q is not what %+v is made of", b, c)
		}
	})
}
