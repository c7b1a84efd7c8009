package cowfs

import (
	"bytes"
	"encoding/binary"
)

// A value that may be larger than a value of the tree is stored in chunks, under keys that
// end with the chunk's number.
const chunkSize = 1024

// putBlob stores a value in chunks.
func (f *FS) putBlob(prefix []byte, val []byte) error {
	for n := uint16(0); n == 0 || len(val) > 0; n++ {
		c := val[:min(len(val), chunkSize)]
		if err := f.tree.Put(binary.BigEndian.AppendUint16(prefix, n), c); err != nil {
			return err
		}
		val = val[len(c):]
	}
	return nil
}

// getBlob returns a value that is stored in chunks, nil if there is none.
func getBlob(tree scanner, prefix []byte) ([]byte, error) {
	var out []byte
	next := 0
	err := tree.Scan(binary.BigEndian.AppendUint16(prefix, 0), func(k, val []byte) bool {
		if !bytes.HasPrefix(k, prefix) || len(k) != len(prefix)+2 || int(binary.BigEndian.Uint16(k[len(prefix):])) != next {
			return false
		}
		next++
		if out == nil {
			out = []byte{}
		}
		out = append(out, val...)
		return len(val) == chunkSize
	})
	return out, err
}

// deleteBlob removes a value that is stored in chunks, and returns whether there was one.
func (f *FS) deleteBlob(prefix []byte) (bool, error) {
	for n := uint16(0); ; n++ {
		ok, err := f.tree.Delete(binary.BigEndian.AppendUint16(prefix, n))
		if err != nil || !ok {
			return n > 0, err
		}
	}
}

// SetTarget stores the target of a symbolic link.
func (f *FS) SetTarget(ino Ino, target string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var buf [keyRoom]byte
	return f.putBlob(key(&buf, ino, keyTarget), []byte(target))
}

// Target returns the target of a symbolic link.
func (f *FS) Target(ino Ino) (string, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var buf [keyRoom]byte
	b, err := getBlob(f.tree, key(&buf, ino, keyTarget))
	if b != nil || err != nil {
		return string(b), err
	}
	in, err := f.imageInode(ino)
	if err != nil {
		return "", err
	}
	return f.image.Readlink(&in)
}
