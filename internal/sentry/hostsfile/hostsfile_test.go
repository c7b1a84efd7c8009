package hostsfile

import "testing"

func TestWith(t *testing.T) {
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	for name, c := range map[string]struct{ old, want string }{
		"none":                        {"", local + "127.0.1.1\tnew\t# ramet\n"},
		"of an image":                 {local, local + "127.0.1.1\tnew\t# ramet\n"},
		"of the parent":               {local + "127.0.1.1\told\t# ramet\n10.0.0.1 db\n", local + "127.0.1.1\tnew old\t# ramet\n10.0.0.1 db\n"},
		"the user's last, no end":     {local + "10.0.0.1 db", local + "10.0.0.1 db\n127.0.1.1\tnew\t# ramet\n"},
		"no IPv6, as the user likes":  {"127.0.0.1 localhost\n", "127.0.0.1 localhost\n127.0.1.1\tnew\t# ramet\n"},
		"localhost in a comment":      {"# localhost\n", local + "# localhost\n127.0.1.1\tnew\t# ramet\n"},
		"localhost as an address":     {"localhost\n", local + "localhost\n127.0.1.1\tnew\t# ramet\n"},
		"one that Debian wrote":       {local + "127.0.1.1\told\n", local + "127.0.1.1\told\n127.0.1.1\tnew\t# ramet\n"},
		"a name added to ours":        {local + "127.0.1.1\told alias\t# ramet\n", local + "127.0.1.1\tnew old alias\t# ramet\n"},
		"the name that it had before": {local + "127.0.1.1\told new older\t# ramet\n", local + "127.0.1.1\tnew old older\t# ramet\n"},
		"ours twice":                  {local + "127.0.1.1 a # ramet\n127.0.1.1 b # ramet\r\n", local + "127.0.1.1\tnew a b\t# ramet\n"},
	} {
		got := With(c.old, "new")
		if got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
		if again := With(got, "new"); again != got {
			t.Errorf("%s: a second time it becomes %q", name, again)
		}
	}
}
