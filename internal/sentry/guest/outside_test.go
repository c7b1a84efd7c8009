package guest

import "testing"

func TestResolverOf(t *testing.T) {
	for name, c := range map[string]struct{ old, connected, none string }{
		"no file":        {"", ownResolver, ""},
		"options":        {"options ndots:2\n", ownResolver + "options ndots:2\n", "options ndots:2\n"},
		"own server":     {"nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n"},
		"a comment":      {"# nameserver 192.0.2.1\n", ownResolver + "# nameserver 192.0.2.1\n", "# nameserver 192.0.2.1\n"},
		"ours":           {ownResolver + "search a\n", ownResolver + "search a\n", "search a\n"},
		"ours and other": {ownResolver + "nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n", "nameserver 192.0.2.1\n"},
		"no end":         {"search a", ownResolver + "search a", "search a"},
	} {
		for connected, want := range map[bool]string{true: c.connected, false: c.none} {
			got := resolverOf(c.old, connected)
			if got != want {
				t.Errorf("%s, connected %v: %q, not %q", name, connected, got, want)
			}
			if again := resolverOf(got, connected); again != got {
				t.Errorf("%s, connected %v: a second time it becomes %q", name, connected, again)
			}
		}
	}
}
