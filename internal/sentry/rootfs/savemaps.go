package rootfs

import (
	"encoding/binary"
	"fmt"

	"gvisor.dev/gvisor/pkg/hostarch"
)

// Where a file is mapped is saved as a string: for each mapping of each piece of it the
// place in liveObjects.spaces, address, length, offset, and 1 if it may write. As gVisor
// saves them, with a map of its own for each piece, they were a sixth of a usual state.

// addSpaces notes the address spaces that i is mapped in.
func (l *liveObjects) addSpaces(i *inode) {
	for seg := i.mappings.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for m := range seg.Value() {
			if _, ok := l.places[m.MappingSpace]; !ok {
				l.places[m.MappingSpace] = len(l.spaces)
				l.spaces = append(l.spaces, m.MappingSpace)
			}
		}
	}
}

// mappings returns those of i. addSpaces has been called for it.
func (l *liveObjects) mappings(i *inode) string {
	var b []byte
	for seg := i.mappings.FirstSegment(); seg.Ok(); seg = seg.NextSegment() {
		for m := range seg.Value() {
			place, ok := l.places[m.MappingSpace]
			if !ok {
				panic(fmt.Sprintf("inode %d is mapped, and was not there when the save was prepared", i.ino)) // the encoder makes it an error
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

// restoreMappings gives i the mappings that were saved.
func (l *liveObjects) restoreMappings(i *inode) error {
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
