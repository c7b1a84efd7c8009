package api

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of the metadata of a sandbox or snapshot.
const (
	MaxMetadata      = 64
	maxMetadataKey   = 128  // bytes
	maxMetadataValue = 1024 // bytes
)

// Labels is metadata that callers outside of a sandbox set. Decisions about access, such as rules of networks and
// public ports, read Labels only.
type Labels map[string]string

// Claims is metadata that a sandbox set itself by self-control. Claims never decide about access.
type Claims map[string]string

// labels returns the entries of metadata whose keys are not claimed.
func labels(metadata map[string]string, claimed []string) Labels {
	out := Labels(maps.Clone(metadata))
	for _, k := range claimed {
		delete(out, k)
	}
	return out
}

// claims returns the entries of metadata whose keys are claimed.
func claims(metadata map[string]string, claimed []string) Claims {
	out := Claims{}
	for _, k := range claimed {
		if v, ok := metadata[k]; ok {
			out[k] = v
		}
	}
	return out
}

// Labels returns the metadata that callers outside of the sandbox set.
func (s *Sandbox) Labels() Labels { return labels(s.Metadata, s.Claimed) }

// Claims returns the metadata that the sandbox, or an ancestor, set by self-control.
func (s *Sandbox) Claims() Claims { return claims(s.Metadata, s.Claimed) }

// Labels returns the metadata that callers outside of the sandbox set.
func (s *Snapshot) Labels() Labels { return labels(s.Metadata, s.Claimed) }

// Claims returns the metadata that the sandbox, or an ancestor, set by self-control.
func (s *Snapshot) Claims() Claims { return claims(s.Metadata, s.Claimed) }

// ChangeClaimed returns the sorted keys of metadata that are claimed after a change of metadata. byItself says that
// the sandbox made the change by self-control.
func ChangeClaimed(claimed []string, change map[string]*string, byItself bool) []string {
	var out []string
	for _, k := range claimed {
		if _, changed := change[k]; !changed {
			out = append(out, k)
		}
	}
	if byItself {
		for k, v := range change {
			if v != nil {
				out = append(out, k)
			}
		}
	}
	slices.Sort(out)
	return out
}

var metadataKey = pattern(`^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$`)

// ValidMetadata returns a CodeInvalid error that names field unless all of
// metadata may be stored. Keys are like those of Kubernetes, so that they can be
// written as arguments and in queries; values are text without a NUL byte.
func ValidMetadata(field string, metadata map[string]string) error {
	if len(metadata) > MaxMetadata {
		return Invalid(field, "%d keys are more than %d", len(metadata), MaxMetadata)
	}
	for k, v := range metadata {
		if err := ValidMetadataKey(field, k); err != nil {
			return err
		}
		if len(v) > maxMetadataValue || !utf8.ValidString(v) || strings.Contains(v, "\x00") {
			return Invalid(field, "the value of %s is not UTF-8 of at most %d bytes without NUL", k, maxMetadataValue)
		}
	}
	return nil
}

// ValidMetadataKey checks a key as ValidMetadata does.
func ValidMetadataKey(field, k string) error {
	if len(k) > maxMetadataKey || !metadataKey().MatchString(k) {
		return Invalid(field, "%.200q is not a key: 1 to %d of letters, digits and '._/-', beginning and ending with a letter or digit", k, maxMetadataKey)
	}
	return nil
}

// UpdateRequest asks for changes of a sandbox's name, metadata and lifecycle. Absent fields
// stay as they are.
type UpdateRequest struct {
	Name *string `json:"name,omitempty" doc:"new name; empty removes it. The host name stays"`
	// Metadata has the keys to set, and with nil those to remove.
	Metadata  map[string]*string `json:"metadata,omitempty" doc:"keys to set; a key with null is removed"`
	Lifecycle *LifecycleRequest  `json:"lifecycle,omitempty" doc:"when it ends or rests by itself; absent members stay as they are"`
}

// ChangeMetadata returns metadata with the changes of an UpdateRequest. It
// returns a CodeInvalid error if the result would not be valid.
func ChangeMetadata(metadata map[string]string, change map[string]*string) (map[string]string, error) {
	out := maps.Clone(metadata)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range change {
		if err := ValidMetadataKey("metadata", k); err != nil {
			return nil, err
		}
		if v == nil {
			delete(out, k)
		} else {
			out[k] = *v
		}
	}
	return out, ValidMetadata("metadata", out)
}
