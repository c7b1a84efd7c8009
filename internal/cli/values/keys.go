package values

import (
	"os"
	"strings"

	"ramet.dev/ramet/api"
)

// keyPrefix begins a public key, as the command key shows it.
const keyPrefix = "ramet-ed25519:"

// maxKeyFile bounds a file of keys, in bytes.
const maxKeyFile = 1 << 20

// ParseKeys returns the public keys that the values of an option are, or that the files have which
// they name: one a line, besides comments that begin with #.
func ParseKeys(option string, values []string) (keys []string, err error) {
	for _, v := range values {
		if strings.HasPrefix(v, keyPrefix) {
			keys = append(keys, v)
			continue
		}
		b, err := os.ReadFile(v)
		if err != nil {
			return nil, api.Invalid(option, "%q is no key, nor a file of keys: %w", v, err)
		}
		if len(b) > maxKeyFile {
			return nil, api.Invalid(option, "%q has more than %d bytes", v, maxKeyFile)
		}
		found := 0
		for line := range strings.Lines(string(b)) {
			line, _, _ = strings.Cut(line, "#")
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if !strings.HasPrefix(line, keyPrefix) {
				return nil, api.Invalid(option, "%q has a line that is no key: %.40q", v, line)
			}
			keys, found = append(keys, line), found+1
		}
		if found == 0 {
			return nil, api.Invalid(option, "%q has no key", v)
		}
	}
	return keys, nil
}
