package erofs

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

// direntTypes are the DT_* types of the kinds of file.
var direntTypes = [...]uint8{
	Regular:     syscall.DT_REG,
	Directory:   syscall.DT_DIR,
	CharDevice:  syscall.DT_CHR,
	BlockDevice: syscall.DT_BLK,
	Fifo:        syscall.DT_FIFO,
	Socket:      syscall.DT_SOCK,
	Symlink:     syscall.DT_LNK,
}

// Lookup finds name in directory dir, "." and ".." included. The type is a DT_* value of the
// entry: in a hostile image the inode may have another type. If dir is not a directory the
// error is ENOTDIR.
func (r *Reader) Lookup(dir *Inode, name string) (nid uint64, typ uint8, ok bool, err error) {
	block, _, err := r.findBlock(dir, name)
	if err != nil || block.count == 0 {
		return 0, 0, false, err
	}
	n, err := block.find(name)
	if err != nil || n == block.count {
		return 0, 0, false, err
	}
	found, err := block.name(n)
	if err != nil || string(found) != name {
		return 0, 0, false, err
	}
	nid, typ, err = block.entry(n)
	return nid, typ, err == nil, err
}

// Entries calls fn for the entries of directory dir that do not sort before from, in the order
// of their names' bytes and without "." and "..", until fn returns false. The names are
// distinct and can be part of a path: not empty, no slash, no NUL, at most MaxNameLen bytes.
// The type is that of Lookup. If dir is not a directory the error is ENOTDIR.
func (r *Reader) Entries(dir *Inode, from string, fn func(name string, typ uint8, nid uint64) bool) error {
	block, index, err := r.findBlock(dir, from)
	if err != nil || block.count == 0 {
		return err
	}
	n, err := block.find(from)
	if err != nil {
		return err
	}
	last := ""
	for {
		for ; n < block.count; n++ {
			raw, err := block.name(n)
			if err != nil {
				return err
			}
			name := string(raw)
			if name <= last || name < from || bytes.IndexByte(raw, '/') >= 0 || bytes.IndexByte(raw, 0) >= 0 {
				return corrupt("directory %d: entry %q follows %q", dir.Nid, name, last)
			}
			nid, typ, err := block.entry(n)
			if err != nil {
				return err
			}
			if last = name; name != "." && name != ".." && !fn(name, typ, nid) {
				return nil
			}
		}
		if index++; index == dirBlocks(dir) {
			return nil
		}
		if block, err = r.block(dir, index); err != nil {
			return err
		}
		n = 0
	}
}

// dirBlock is one block of a directory: entries, then their names.
type dirBlock struct {
	dir   uint64
	b     []byte
	count int
}

func dirBlocks(dir *Inode) uint64 {
	blocks := dir.Size / BlockSize
	if dir.Size%BlockSize != 0 {
		blocks++
	}
	return blocks
}

// findBlock returns the last block of dir that begins with name or before it, or
// the first block if there is none. For an empty directory it is the zero block.
func (r *Reader) findBlock(dir *Inode, name string) (block dirBlock, index uint64, err error) {
	if dir.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return dirBlock{}, 0, syscall.ENOTDIR
	}
	if dir.Size == 0 {
		return dirBlock{}, 0, nil
	}
	low, high := uint64(0), dirBlocks(dir)-1
	for low < high {
		mid := high - (high-low)/2
		if block, err = r.block(dir, mid); err != nil {
			return dirBlock{}, 0, err
		}
		first, err := block.name(0)
		if err != nil {
			return dirBlock{}, 0, err
		}
		if string(first) <= name {
			low = mid
		} else {
			high = mid - 1
		}
	}
	block, err = r.block(dir, low)
	return block, low, err
}

// block returns block index of dir, which has at least one entry.
func (r *Reader) block(dir *Inode, index uint64) (dirBlock, error) {
	done := index * BlockSize
	off, size := dir.lead+done, min(dir.Size-done, BlockSize)
	if dir.tail != 0 && size < BlockSize {
		off = dir.tail
	}
	if size < direntSize || !r.holds(off, size) {
		return dirBlock{}, corrupt("directory %d: block of %d bytes at %d", dir.Nid, size, off)
	}
	b := r.data[off : off+size]
	names := int(binary.LittleEndian.Uint16(b[8:])) // the first name follows the last entry
	if names < direntSize || names%direntSize != 0 || names >= len(b) {
		return dirBlock{}, corrupt("directory %d: names at %d in block %d", dir.Nid, names, index)
	}
	return dirBlock{dir.Nid, b, names / direntSize}, nil
}

// find returns the first entry of the block that does not sort before name, or
// the number of entries.
func (d dirBlock) find(name string) (int, error) {
	low, high := 0, d.count
	for low < high {
		mid := (low + high) / 2
		at, err := d.name(mid)
		if err != nil {
			return 0, err
		}
		if string(at) < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// name returns the name of entry n, which ends where the next one begins; the
// last one ends at a NUL or with the block.
func (d dirBlock) name(n int) ([]byte, error) {
	le := binary.LittleEndian
	start, end := int(le.Uint16(d.b[n*direntSize+8:])), len(d.b)
	last := n == d.count-1
	if !last {
		end = int(le.Uint16(d.b[(n+1)*direntSize+8:]))
	}
	if start >= d.count*direntSize && start < end && end <= len(d.b) {
		name := d.b[start:end]
		if last {
			name = name[:min(len(name), MaxNameLen+1)]
			if nul := bytes.IndexByte(name, 0); nul >= 0 {
				name = name[:nul]
			}
		}
		if len(name) > 0 && len(name) <= MaxNameLen {
			return name, nil
		}
	}
	return nil, corrupt("directory %d: name of an entry at %d to %d", d.dir, start, end)
}

func (d dirBlock) entry(n int) (nid uint64, typ uint8, err error) {
	b := d.b[n*direntSize:]
	kind := b[10]
	if kind == 0 || int(kind) >= len(direntTypes) {
		return 0, 0, corrupt("directory %d: entry of type %d", d.dir, kind)
	}
	return binary.LittleEndian.Uint64(b), direntTypes[kind], nil
}
