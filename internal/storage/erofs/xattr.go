package erofs

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxXattrName is the length limit of an extended attribute's name in bytes,
	// its prefix included.
	MaxXattrName = 255
	// MaxXattrValue is the length limit of an extended attribute's value in bytes.
	// It is one less than Linux's: the format keeps 16 bits.
	MaxXattrValue = 1<<16 - 1

	xattrHeaderSize = 12
	xattrEntrySize  = 4
	xattrAlign      = 4
	maxXattrCount   = 1<<16 - 1
	// MaxXattrs bounds the size of a file's extended attributes in an image, in bytes. The
	// format counts their words in 16 bits.
	MaxXattrs = xattrHeaderSize + xattrAlign*(maxXattrCount-1)
)

// Xattr is an extended attribute of a file.
type Xattr struct {
	Name  string // with its prefix, as in "user.mime_type"
	Value []byte
}

// xattrPrefixes are the prefixes that a name may have. The format has their index.
var xattrPrefixes = [...]string{
	1: "user.",
	2: "system.posix_acl_access",
	3: "system.posix_acl_default",
	4: "trusted.",
	6: "security.",
}

// splitXattr splits the prefix from a name. The prefixes of access control lists are whole names;
// the others must be followed by a rest.
func splitXattr(name string) (index uint8, rest string, ok bool) {
	for i, prefix := range xattrPrefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok && prefix != "" {
			return uint8(i), rest, (rest != "") == strings.HasSuffix(prefix, ".")
		}
	}
	return 0, "", false
}

// validateXattrs returns the reason why a file cannot have these attributes, or "".
func validateXattrs(all []Xattr) string {
	size := xattrHeaderSize
	names := make(map[string]bool, len(all))
	for _, x := range all {
		_, rest, ok := splitXattr(x.Name)
		switch {
		case !ok || len(x.Name) > MaxXattrName || strings.IndexByte(x.Name, 0) >= 0:
			return fmt.Sprintf("an extended attribute cannot be called %q", x.Name)
		case len(x.Value) > MaxXattrValue:
			return fmt.Sprintf("extended attribute %q has %d bytes, allowed are %d", x.Name, len(x.Value), MaxXattrValue)
		case names[x.Name]:
			return fmt.Sprintf("there are two extended attributes %q", x.Name)
		}
		names[x.Name] = true
		size += xattrSize(rest, x.Value)
	}
	if size > MaxXattrs {
		return fmt.Sprintf("the extended attributes take %d bytes, allowed are %d", size, MaxXattrs)
	}
	return ""
}

// xattrSize returns the size of an entry in bytes.
func xattrSize(rest string, value []byte) int {
	return (xattrEntrySize + len(rest) + len(value) + xattrAlign - 1) &^ (xattrAlign - 1)
}

// encodeXattrs returns the bytes that follow an inode with these attributes.
func encodeXattrs(all []Xattr) []byte {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Xattr) int { return cmp.Compare(a.Name, b.Name) })
	out := make([]byte, xattrHeaderSize)
	for _, x := range all {
		index, rest, _ := splitXattr(x.Name)
		out = append(out, uint8(len(rest)), index)
		out = binary.LittleEndian.AppendUint16(out, uint16(len(x.Value)))
		out = append(append(out, rest...), x.Value...)
		out = append(out, zeros[:-len(out)&(xattrAlign-1)]...)
	}
	return out
}

// xattrCount returns the count that an inode has for size bytes of attributes.
func xattrCount(size int) uint16 {
	if size == 0 {
		return 0
	}
	return uint16((size-xattrHeaderSize)/xattrAlign + 1)
}

// HasXattrs returns whether inode i may have extended attributes.
func (i *Inode) HasXattrs() bool { return i.xattrSize > 0 }

// Xattrs calls fn for the extended attributes of inode i, in the order of the image, until fn
// returns false. In a hostile image a name may come several times: the first counts. value
// refers to the image.
func (r *Reader) Xattrs(i *Inode, fn func(name string, value []byte) bool) error {
	if i.xattrSize == 0 {
		return nil
	}
	if !r.holds(i.xattrs, i.xattrSize) || i.xattrSize < xattrHeaderSize {
		return corrupt("inode %d: %d bytes of extended attributes at %d", i.Nid, i.xattrSize, i.xattrs)
	}
	b := r.data[i.xattrs : i.xattrs+i.xattrSize]
	if b[4] != 0 {
		return unsupported("inode %d: it shares extended attributes with others", i.Nid)
	}
	for b = b[xattrHeaderSize:]; len(b) > 0; {
		nameLen, index, valueLen := int(b[0]), int(b[1]), int(binary.LittleEndian.Uint16(b[2:]))
		size := (xattrEntrySize + nameLen + valueLen + xattrAlign - 1) &^ (xattrAlign - 1)
		if size > len(b) {
			return corrupt("inode %d: an extended attribute of %d bytes where there are %d", i.Nid, size, len(b))
		}
		prefix := ""
		if index < len(xattrPrefixes) {
			prefix = xattrPrefixes[index]
		}
		raw := b[xattrEntrySize : xattrEntrySize+nameLen]
		name := prefix + string(raw)
		if _, _, ok := splitXattr(name); !ok || prefix == "" || len(name) > MaxXattrName || bytes.IndexByte(raw, 0) >= 0 {
			return corrupt("inode %d: an extended attribute is called %q with prefix %d", i.Nid, raw, index)
		}
		if !fn(name, b[xattrEntrySize+nameLen:xattrEntrySize+nameLen+valueLen]) {
			return nil
		}
		b = b[size:]
	}
	return nil
}

// Xattr returns the extended attribute of inode i with a name, or false. The value refers to the
// image.
func (r *Reader) Xattr(i *Inode, name string) (value []byte, ok bool, err error) {
	err = r.Xattrs(i, func(n string, v []byte) bool {
		if n == name {
			value, ok = v, true
		}
		return !ok
	})
	return value, ok, err
}
