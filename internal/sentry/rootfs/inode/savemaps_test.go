package inode

import (
	"maps"
	"math/rand/v2"
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// listed returns what is in a set: gVisor joins pieces or not as it likes.
func listed(set *memmap.MappingSet) map[uint64]memmap.MappingsOfRange {
	pages := map[uint64]memmap.MappingsOfRange{}
	for seg := set.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for off := seg.Start(); off < seg.End(); off += hostarch.PageSize {
			pages[off] = memmap.MappingsOfRange{}
			for m := range seg.Value() {
				start := m.AddrRange.Start + hostarch.Addr(off-seg.Start())
				m.AddrRange = hostarch.AddrRange{Start: start, End: start + hostarch.PageSize}
				pages[off][m] = struct{}{}
			}
		}
	}
	return pages
}

func TestMappingsComeBack(t *testing.T) {
	ctx := context.Background()
	users := []*space{{}, {}, {}}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		l, places := liveInodes{}, map[memmap.MappingSpace]int{}
		var inodes []*Inode
		for range 3 {
			i := &Inode{}
			for n := range r.IntN(12) {
				at := hostarch.Addr(0x7f00_0000_0000 + n*0x100_0000)
				ar := hostarch.AddrRange{Start: at, End: at + hostarch.Addr(1+r.IntN(40))*hostarch.PageSize}
				if err := i.AddMapping(ctx, users[r.IntN(len(users))], ar, uint64(r.IntN(40))*hostarch.PageSize, r.IntN(3) == 0); err != nil {
					t.Fatal(err)
				}
			}
			i.saved = l.pack(i, places)
			inodes = append(inodes, i)
		}
		for _, i := range inodes {
			back := savedInode(i.saved)
			if err := l.unpack(back); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			want, got := listed(&i.mappings), listed(&back.mappings)
			if !maps.EqualFunc(want, got, func(a, b memmap.MappingsOfRange) bool { return maps.Equal(a, b) }) {
				t.Fatalf("seed %d: %v comes back as %v", seed, want, got)
			}
			if back.saved != "" {
				t.Error("the string is kept")
			}
		}
	}
}

func TestDamagedMappings(t *testing.T) {
	var l liveInodes
	i := &Inode{}
	if err := i.AddMapping(context.Background(), &space{}, hostarch.AddrRange{Start: 0x10000, End: 0x12000}, 0x3000, true); err != nil {
		t.Fatal(err)
	}
	good := l.pack(i, map[memmap.MappingSpace]int{})
	for at := range len(good) {
		if err := l.unpack(savedInode(good[:at])); at > 0 && err == nil {
			t.Errorf("the first %d of %d bytes are taken", at, len(good))
		}
	}
	for what, bad := range map[string]string{
		"another space":        "\x01" + good[1:],
		"half a place":         "\x00\x81\x20\x80\x20\x00\x00",
		"half an offset":       "\x00\x80\x20\x80\x20\x80\x10\x00",
		"an offset at the end": "\x00\x80\x20\x80\x20\x80\xe0\xff\xff\xff\xff\xff\xff\xff\x01\x00",
		"no length":            "\x00\x80\x20\x00\x00\x00",
		"half a page":          "\x00\x80\x20\x80\x10\x00\x00",
		"an end":               "\x00\x80\xe0\xff\xff\xff\xff\xff\xff\xff\x01\x80\x40\x00\x00",
	} {
		if err := l.unpack(savedInode(bad)); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// savedInode returns an inode with saved mappings.
func savedInode(saved string) *Inode {
	i := &Inode{}
	i.saved = saved
	return i
}
