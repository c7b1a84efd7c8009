package wire

import (
	"bytes"
	"reflect"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
)

func TestPartRoundTrip(t *testing.T) {
	for _, p := range []interp.Part{
		{Kind: interp.KindResult, Data: []byte(`{"a":`)},
		{Kind: interp.KindDone, Data: []byte{}, Last: true},
	} {
		got, err := ParsePart(AppendPart(nil, p))
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
	}
	for _, b := range []string{"", "d", "d\x02x"} {
		if got, err := ParsePart([]byte(b)); err == nil {
			t.Errorf("%q is %+v", b, got)
		}
	}
}

func FuzzParsePart(f *testing.F) {
	f.Add(AppendPart(nil, interp.Part{Kind: interp.KindDone, Data: []byte("x"), Last: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ParsePart(b); err == nil && !bytes.Equal(AppendPart(nil, p), b) {
			t.Fatalf("%q is not what %+v is made of", b, p)
		}
	})
}
