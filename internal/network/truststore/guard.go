package truststore

import (
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// maxEntries bounds the entries of a store. There are some hundred authorities.
	maxEntries = 10_000
	// maxIterations bounds what deriving keys of a store may cost, in rounds of all of them
	// together. Java's own stores take 20 000.
	maxIterations = 1_000_000
	// maxDepth bounds how values are nested in a store.
	maxDepth = 32
)

// checkJKS walks a store in Java's own format. The reader of the library makes room for as
// much as a length says, and these files are a guest's.
func checkJKS(b []byte) error {
	c := cursor{rest: b}
	c.skip(4)
	version := c.uint(4)
	n := c.uint(4)
	if n > maxEntries {
		return fmt.Errorf("it has %d entries", n)
	}
	for range n {
		if tag := c.uint(4); c.err == nil && tag != 2 {
			return errors.New("it has an entry that is no trusted certificate")
		}
		c.skip(c.uint(2)) // alias
		c.skip(8)         // time
		if version == 2 {
			c.skip(c.uint(2)) // type
		}
		c.skip(c.uint(4))
	}
	return c.err
}

// cursor reads numbers and skips what they say is there.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) skip(n uint64) {
	if n > uint64(len(c.rest)) {
		c.rest, c.err = nil, errors.New("it is cut off")
		return
	}
	c.rest = c.rest[n:]
}

func (c *cursor) uint(size int) uint64 {
	var b [8]byte
	if size <= len(c.rest) {
		copy(b[8-size:], c.rest)
	}
	c.skip(uint64(size))
	return binary.BigEndian.Uint64(b[:])
}

// checkPKCS12 adds up the rounds by which the keys of a store are derived from its password.
// They are numbers that follow salts, in its parameters of encryption and of its digest;
// the library takes as many as they say.
func checkPKCS12(b []byte) error {
	left := int64(maxIterations)
	return checkRounds(b, &left, 0)
}

// checkRounds looks at the values in b, and in those that they contain.
func checkRounds(b []byte, left *int64, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its values are nested more than %d deep", maxDepth)
	}
	afterSalt := false
	for len(b) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(b, &v)
		if err != nil {
			return nil // not DER: text of a certificate, or something that the library refuses too
		}
		b = rest
		universal := v.Class == asn1.ClassUniversal
		if universal && v.Tag == asn1.TagInteger && afterSalt {
			var n int64
			if _, err := asn1.Unmarshal(v.FullBytes, &n); err != nil || n > *left {
				return fmt.Errorf("its keys take more than %d rounds", maxIterations)
			}
			*left -= max(n, 0)
		}
		afterSalt = universal && v.Tag == asn1.TagOctetString
		if v.IsCompound || afterSalt {
			if err := checkRounds(v.Bytes, left, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
