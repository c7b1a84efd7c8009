package pkgcache

import (
	"encoding/hex"
	"errors"
	"strconv"
)

// Digest is the checksum and the size of a file, as signed metadata promises them.
type Digest struct {
	SHA256 string // lower-case hex
	Size   int64
}

// ParseDigest reads a SHA-256 in hexadecimal and a decimal size.
func ParseDigest(sum, size string) (Digest, error) {
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) != 32 {
		return Digest{}, errors.New("not a SHA-256")
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 {
		return Digest{}, errors.New("not a size")
	}
	return Digest{SHA256: hex.EncodeToString(raw), Size: n}, nil
}
