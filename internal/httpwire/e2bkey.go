package httpwire

import (
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
)

// E2BPrefix begins a token in the form of an API key of E2B.
const E2BPrefix = "e2b_"

var secretText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// E2BKey returns the secret of a token in the form that older clients of E2B demand: e2b_ and hexadecimal
// digits.
func E2BKey(secret string) string {
	b, err := secretText.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
	if err != nil {
		return secret
	}
	return E2BPrefix + hex.EncodeToString(b)
}

// SecretOfE2BKey returns the secret of a token, which is given in either form.
func SecretOfE2BKey(key string) (string, error) {
	digits, ok := strings.CutPrefix(key, E2BPrefix)
	if !ok {
		return key, nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return "", errors.New("the API key is not e2b_ and hexadecimal digits")
	}
	return SecretPrefix + secretText.EncodeToString(b), nil
}
