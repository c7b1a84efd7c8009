package truststore

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// hashed is the directory in which OpenSSL looks for an authority by a digest of its name.
const hashed = "etc/ssl/certs"

var hashedName = regexp.MustCompile(`^[0-9a-f]{8}\.[0-9]+$`)

// hashes adds files to the directory if OpenSSL looks there at all: it does not need the
// bundle then.
func (p *planner) hashes() error {
	names, err := p.list(hashed)
	if err != nil || !slices.ContainsFunc(names, hashedName.MatchString) {
		return err
	}
	for _, c := range p.trusted {
		hash, err := subjectHash(c)
		if err != nil {
			return fmt.Errorf("find the place of %s: %w", c.Subject, err)
		}
		// Authorities whose names have the same digest are numbered.
		for n := 0; ; n++ {
			name := path.Join(hashed, fmt.Sprintf("%08x.%d", hash, n))
			if p.planned(name) {
				continue
			}
			text, err := p.read(name)
			if err != nil {
				return err
			}
			if text == nil {
				p.write(name, encode(c))
			}
			if text == nil || inBundle(text)[string(c.Raw)] {
				break
			}
		}
	}
	return nil
}

// planned reports whether the plan has a file.
func (p *planner) planned(name string) bool {
	return slices.ContainsFunc(p.plan.Files, func(f File) bool { return f.Path == "/"+name })
}

// attribute is a part of a name, AttributeTypeAndValue of X.501.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// subjectHash is X509_NAME_hash of OpenSSL: the first four bytes of SHA-1 of the name in a
// canonical form, in which texts are UTF-8, in lower case and have single spaces, and the
// outermost header is left out.
func subjectHash(c *x509.Certificate) (uint32, error) {
	var sets []asn1.RawValue
	if _, err := asn1.Unmarshal(c.RawSubject, &sets); err != nil {
		return 0, err
	}
	var canonical []byte
	for _, set := range sets {
		var parts [][]byte
		for rest := set.Bytes; len(rest) > 0; {
			var a attribute
			var err error
			if rest, err = asn1.Unmarshal(rest, &a); err != nil {
				return 0, err
			}
			part, err := asn1.Marshal(attribute{a.Type, canonicalValue(a.Value)})
			if err != nil {
				return 0, err
			}
			parts = append(parts, part)
		}
		slices.SortFunc(parts, bytes.Compare) // DER sorts the members of a set
		set, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSet, IsCompound: true, Bytes: slices.Concat(parts...)})
		if err != nil {
			return 0, err
		}
		canonical = append(canonical, set...)
	}
	sum := sha1.Sum(canonical)
	return binary.LittleEndian.Uint32(sum[:]), nil
}

// canonicalValue is asn1_string_canon of OpenSSL. Texts in other encodings than those of the
// names of authorities that exist stay as they are.
func canonicalValue(v asn1.RawValue) asn1.RawValue {
	var text string
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, 26: // VisibleString
		text = string(v.Bytes)
	case asn1.TagT61String: // read as Latin-1
		text = latin1(v.Bytes)
	case asn1.TagBMPString:
		for i := 0; i+1 < len(v.Bytes); i += 2 {
			text += string(rune(binary.BigEndian.Uint16(v.Bytes[i:])))
		}
	default:
		return v
	}
	var b strings.Builder
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) }) {
		if i > 0 {
			b.WriteByte(' ')
		}
		for _, r := range word {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			b.WriteRune(r)
		}
	}
	return asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagUTF8String, Bytes: []byte(b.String())}
}

func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

// fingerprint is a name for a certificate.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}
