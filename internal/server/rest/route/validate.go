package route

import "ramet.dev/ramet/api"

// ValidSandbox checks a reference to a sandbox in the path of a route.
func ValidSandbox(ref string) error { return api.ValidRef(api.KindSandbox, "id", ref) }

// ValidSnapshot checks a reference to a snapshot.
func ValidSnapshot(field, ref string) error { return api.ValidRef(api.KindSnapshot, field, ref) }

// ValidFilter checks a reference to a sandbox or a snapshot that may be absent.
func ValidFilter(field, ref string) error {
	if ref == "" {
		return nil
	}
	return api.ValidSource(field, ref)
}
