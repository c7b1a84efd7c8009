package secrets

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"regexp"
)

// redacted is what a value prints as.
const redacted = "[secret]"

// Value is the text of a secret. It prints as a fixed word in every way that a program
// prints values, also within other values; only Reveal tells it.
type Value struct {
	// text returns where the text is. It is a function because fmt prints what unexported
	// fields hold without asking their methods, and follows pointers: not functions.
	text func() *[]byte
}

// NewValue makes a value of a text, which it copies.
func NewValue(text string) Value { return valueOf([]byte(text)) }

// valueOf makes a value that has b.
func valueOf(b []byte) Value { return Value{func() *[]byte { return &b }} }

// Reveal returns the text.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return string(*v.text())
}

// IsZero reports whether there is no text.
func (v Value) IsZero() bool { return v.text == nil || len(*v.text()) == 0 }

// Clear overwrites the text, for all copies of the value. Texts that Reveal returned stay.
// Nobody may use the value at the same time.
func (v Value) Clear() {
	if v.text != nil {
		clear(*v.text())
		*v.text() = nil
	}
}

// String implements fmt.Stringer.
func (v Value) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (v Value) GoString() string { return redacted }

// Format implements fmt.Formatter, which verbs such as %x and %d heed.
func (v Value) Format(s fmt.State, _ rune) { fmt.Fprint(s, redacted) }

// MarshalText implements encoding.TextMarshaler, which JSON heeds as well.
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }

const (
	// PlaceholderPrefix begins all placeholders.
	PlaceholderPrefix = "ramet-secret-"
	placeholderBytes  = 20
)

var placeholderText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

var placeholder = regexp.MustCompile(`^` + PlaceholderPrefix + `[a-z2-7]{32}$`)

// NewPlaceholder makes a placeholder: 160 random bits.
func NewPlaceholder() string {
	b := make([]byte, placeholderBytes)
	rand.Read(b) // it never fails
	return PlaceholderPrefix + placeholderText.EncodeToString(b)
}

// IsName reports whether a text may be the name of a secret.
func IsName(text string) bool { return secretName.MatchString(text) }

// IsPlaceholder reports whether a text is a placeholder.
func IsPlaceholder(text string) bool { return placeholder.MatchString(text) }
