package snapfile

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// memFile is an io.WriterAt that grows.
type memFile []byte

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(*m) {
		*m = append(*m, make([]byte, need-len(*m))...)
	}
	return copy((*m)[off:], p), nil
}

func example() *Snapshot {
	return &Snapshot{
		Copied:      []Range{{0, PageSize}, {8 * PageSize, 10 * PageSize}},
		Pages:       3 * PageSize,
		State:       []byte("state"),
		Meta:        []byte("meta"),
		Table:       []Extent{{Range{PageSize, 2 * PageSize}, 1}, {Range{2 * PageSize, 4 * PageSize}, 0}},
		Generations: []string{"a", "b"},
		Held:        []Held{{Range{0, PageSize}, 3}, {Range{PageSize, 4 * PageSize}, 1}},
		Outputs: []Output{{PID: 2, Next: 17, Blocks: []OutputBlock{
			{Start: 7, Data: []byte("hello"), Marks: []Mark{{7, 1, 1}, {9, -2, 2}}},
			{Start: 12, Data: []byte("world"), Marks: []Mark{{12, 3, 1}}},
		}}, {PID: 3, Next: 4}},
	}
}

func encode(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	var f memFile
	if _, err := f.WriteAt(bytes.Repeat([]byte{7}, int(s.Pages)), PagesOffset); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTo(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRoundTrip(t *testing.T) {
	for _, s := range []*Snapshot{example(), {Copied: []Range{}, State: []byte{}, Meta: []byte{}, Table: []Extent{}, Generations: []string{}, Held: []Held{}}} {
		got, err := Parse(encode(t, s))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Errorf("got %+v, want %+v", got, s)
		}
	}
}

func TestParseRefusesDamagedFiles(t *testing.T) {
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":           func(b []byte) []byte { return nil },
		"cut header":      func(b []byte) []byte { return b[:100] },
		"cut sections":    func(b []byte) []byte { return b[:len(b)-1] },
		"magic":           func(b []byte) []byte { b[0] = 'x'; return b },
		"version":         func(b []byte) []byte { b[8]++; return b },
		"offset overflow": func(b []byte) []byte { binary.LittleEndian.PutUint64(b[32:], 1<<63); return b },
		"length overflow": func(b []byte) []byte { binary.LittleEndian.PutUint64(b[40:], ^uint64(0)); return b },
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Parse(damage(encode(t, example()))); err == nil {
				t.Errorf("accepted %+v", got)
			}
		})
	}
}

func TestParseRefusesBadRanges(t *testing.T) {
	for name, damage := range map[string]func(*Snapshot){
		"overlapping table":  func(s *Snapshot) { s.Table[1].Start = s.Table[0].Start },
		"unaligned table":    func(s *Snapshot) { s.Table[0].Start++ },
		"huge range":         func(s *Snapshot) { s.Table[1].End = 1 << 63 },
		"unknown generation": func(s *Snapshot) { s.Table[0].Gen = 2 },
		"empty range":        func(s *Snapshot) { s.Copied[0].End = s.Copied[0].Start },
		"overlapping held":   func(s *Snapshot) { s.Held[1].Start = s.Held[0].Start },
		"held by nobody":     func(s *Snapshot) { s.Held[0].Refs = 0 },
		"held by too many":   func(s *Snapshot) { s.Held[0].Refs = maxRefs },
		"output ends early":  func(s *Snapshot) { s.Outputs[0].Next++ },
		"output with a gap":  func(s *Snapshot) { s.Outputs[0].Blocks[1].Start++ },
		"output too long":    func(s *Snapshot) { s.Outputs[0].Next = 3 },
		"no mark":            func(s *Snapshot) { s.Outputs[0].Blocks[1].Marks = nil },
		"first mark is late": func(s *Snapshot) { s.Outputs[0].Blocks[1].Marks[0].Seq++ },
		"marks in disorder":  func(s *Snapshot) { s.Outputs[0].Blocks[0].Marks[1].Seq = 7 },
		"mark outside":       func(s *Snapshot) { s.Outputs[0].Blocks[0].Marks[1].Seq = 12 },
		"unknown stream":     func(s *Snapshot) { s.Outputs[0].Blocks[0].Marks[1].Stream = 3 },
		"too few pages":      func(s *Snapshot) { s.Copied[1].End += PageSize },
		"too many pages":     func(s *Snapshot) { s.Copied = s.Copied[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			s := example()
			damage(s)
			if got, err := Parse(encode(t, s)); err == nil {
				t.Errorf("accepted %+v", got)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, example()))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		var end uint64
		for _, e := range s.Table {
			if e.Start < end || e.End <= e.Start || int(e.Gen) >= len(s.Generations) {
				t.Fatalf("accepted extent %+v", e)
			}
			end = e.End
		}
		for _, o := range s.Outputs {
			for _, b := range o.Blocks {
				if len(b.Marks) == 0 || b.Marks[0].Seq != b.Start || b.Start+int64(len(b.Data)) > o.Next {
					t.Fatalf("accepted output %+v", b)
				}
			}
		}
	})
}

// TestParseForeign refuses sections that would take much more memory than they have bytes.
func TestParseForeign(t *testing.T) {
	s := example()
	if _, err := ParseForeign(encode(t, s)); err != nil {
		t.Error(err)
	}
	for range 40_000 {
		s.Generations = append(s.Generations, "")
	}
	b := encode(t, s)
	if _, err := Parse(b); err != nil {
		t.Error(err)
	}
	if _, err := ParseForeign(b); err == nil {
		t.Error("40 000 generations of a stranger are decoded")
	}
}
