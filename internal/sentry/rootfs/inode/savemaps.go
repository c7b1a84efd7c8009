package inode

import (
	"encoding/binary"
	"fmt"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// The mappings of a file are saved as a string: for each mapping of each piece of the file
// the place of its address space in liveInodes.spaces, address, length, offset, and 1 if it
// is writable. As gVisor saves them, with a map for each piece, they were a sixth of the
// objects of a usual state.

// pack returns the mappings of i. places has the places of address spaces in l.spaces; pack
// adds new address spaces to both.
func (l *liveInodes) pack(i *Inode, places map[memmap.MappingSpace]int) string {
	i.mapsMu.Lock()
	defer i.mapsMu.Unlock()
	var b []byte
	for seg := i.mappings.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for m := range seg.Value() {
			place, ok := places[m.MappingSpace]
			if !ok {
				place = len(l.spaces)
				places[m.MappingSpace] = place
				l.spaces = append(l.spaces, m.MappingSpace)
			}
			writable := uint64(0)
			if m.Writable {
				writable = 1
			}
			for _, v := range []uint64{uint64(place), uint64(m.AddrRange.Start), uint64(m.AddrRange.Length()), seg.Start(), writable} {
				b = binary.AppendUvarint(b, v)
			}
		}
	}
	return string(b)
}

// unpack gives i its saved mappings.
func (l *liveInodes) unpack(i *Inode) error {
	for b := []byte(i.saved); len(b) > 0; {
		var v [5]uint64
		for k := range v {
			n := 0
			if v[k], n = binary.Uvarint(b); n <= 0 {
				return fmt.Errorf("mappings of inode %d: they break off", i.ino)
			}
			b = b[n:]
		}
		place, start, length, offset := v[0], hostarch.Addr(v[1]), v[2], v[3]
		ar, ok := start.ToRange(length)
		if place >= uint64(len(l.spaces)) || !ok || length == 0 || !start.IsPageAligned() || (length|offset)%hostarch.PageSize != 0 || offset+length < offset {
			return fmt.Errorf("mappings of inode %d: %x bytes of %x at %x in address space %d of %d", i.ino, length, offset, start, place, len(l.spaces))
		}
		i.mappings.AddMapping(l.spaces[place], ar, offset, v[4] != 0)
	}
	i.saved = ""
	return nil
}
