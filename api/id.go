package api

import (
	"crypto/rand"
	"encoding/base32"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Kind is the prefix of an identifier, which says what kind of thing it names.
type Kind string

// The kinds of identifier that Ramet hands out.
const (
	KindSandbox  Kind = "sbx"
	KindSnapshot Kind = "snap"
	KindImage    Kind = "img"
	KindToken    Kind = "tok"

	KindExploration Kind = "xpl"
	KindVolume      Kind = "vol"
)

// idBytes gives 80 random bits: 16 characters of base32 without padding, too
// many to guess and short enough to type.
const idBytes = 10

var (
	base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	idPattern   = pattern(`^(sbx|snap|img|tok|xpl|vol)_[a-z2-7]{16}$`)
	idPrefix    = pattern(`^(sbx|snap|img|tok|xpl|vol)_`)
	namePattern = pattern(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
)

// pattern returns a regular expression that is compiled when it is first needed, because it
// would slow down the start of each sentry, and most sentries never need it.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// NewID returns a fresh random identifier of kind k.
func NewID(k Kind) string {
	var b [idBytes]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return EncodeID(k, b)
}

// EncodeID returns the identifier of kind k made of the given bytes. Images use
// it to derive their id from their digest.
func EncodeID(k Kind, b [idBytes]byte) string {
	return string(k) + "_" + base32Lower.EncodeToString(b[:])
}

// IsID reports whether s is a well-formed identifier of kind k. Only strings
// that pass may become part of a path.
func IsID(k Kind, s string) bool {
	return idPattern().MatchString(s) && strings.HasPrefix(s, string(k)+"_")
}

// ValidName returns a CodeInvalid error that names field unless s can be
// the name of a sandbox or snapshot. Names have the form of host names, because a sandbox's
// name becomes its host name, and never the form of an id.
func ValidName(field, s string) error {
	if !namePattern().MatchString(s) || strings.Contains(s, "..") {
		return Invalid(field, "%q is not a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit", s)
	}
	if idPrefix().MatchString(s) {
		return Invalid(field, "%q is not a name: sbx_, snap_, img_, tok_, xpl_ and vol_ begin ids", s)
	}
	return nil
}

// ValidTenant returns a CodeInvalid error unless s may be the name of a tenant.
func ValidTenant(s string) error {
	if err := ValidName("tenant", s); err != nil || strings.ContainsAny(s, "._") {
		return Invalid("tenant", "%q is not a tenant: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit", s)
	}
	return nil
}

// ValidRef returns a CodeInvalid error unless s is an id of kind k or a name.
func ValidRef(k Kind, field, s string) error {
	if IsID(k, s) {
		return nil
	}
	return ValidName(field, s)
}

// ValidOptionalName is ValidName for a name that may be absent.
func ValidOptionalName(field, s string) error {
	if s == "" {
		return nil
	}
	return ValidName(field, s)
}

// ValidSource returns a CodeInvalid error unless s is the id or name of a sandbox or the id
// of a snapshot.
func ValidSource(field, s string) error {
	if IsID(KindSnapshot, s) {
		return nil
	}
	return ValidRef(KindSandbox, field, s)
}

// ValidChildNames returns a CodeInvalid error unless names fit count children: none, or one
// for each of them. An empty name is no name.
func ValidChildNames(count int, names []string) error {
	if len(names) != 0 && len(names) != count {
		return Invalid("names", "there are %d names for %d children", len(names), count)
	}
	for _, name := range names {
		if err := ValidOptionalName("names", name); err != nil {
			return err
		}
	}
	return nil
}

// DistinctNames returns a CodeInvalid error that names field if a name is in names twice. It
// is for the edge of the daemon; the node reserves names one by one, and would report the second
// as taken.
func DistinctNames(field string, names []string) error {
	for i, name := range names {
		if name != "" && slices.Contains(names[:i], name) {
			return Invalid(field, "%q is given twice", name)
		}
	}
	return nil
}
