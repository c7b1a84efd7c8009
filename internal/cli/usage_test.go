package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestMessages: what is wrong is said in the first line: the option, if it is one, what was
// typed, and what may be; an error about arguments has two short lines more.
func TestMessages(t *testing.T) {
	socket := apitest.Serve(t, fakeService())
	for _, c := range []struct{ args, want string }{
		{"create", "IMAGE is missing"},
		{"create python base", `"base" is one argument too many: create takes IMAGE; say --name base if that is its name`},
		{"create python --ttl 5", `--ttl: "5" is a time without a unit: say 5s`},
		{"create python --ttl soon", `--ttl: "soon" is not a time: say 90s, 10m or 12h`},
		{"create python --memory 512", `--memory: "512" is a size without a unit: say 512M`},
		{"create python --memory lots", `--memory: "lots" is not a size: say 512M or 2G`},
		{"create python --memory 1e30T", `--memory: "1e30T" is more than 1048576T`},
		{"create python --memory 1e999M", `--memory: "1e999M" is more than 1048576T`},
		{"create python --memory=", `--memory: "" is not a size: say 512M or 2G`},
		{"create python --require=", `--require: "" names nothing: leave the option out for none`},
		{"create python --require seccomp,", `--require: "seccomp," names nothing: leave the option out for none`},
		{"fork base --require=", `--require: "" names nothing: leave the option out for none`},
		{"fork base --require nothing", `--require: "nothing" is not one of fresh-randomness`},
		{"ls --state odd", `--state: "odd" is not one of creating, running, paused, hibernated, failed`},
		{"ls --state=", `--state: "" is not creating, running, paused, hibernated or failed`},
		{"ls --image=", `--image: "" is not an image`},
		{"tenant quota acme --memory=", `--memory: "" is not a size: say 512M or 2G`},
		{"create python --cpus many", `--cpus: "many" is not a number`},
		{"create python --name=", `--name: "" is not a name: leave the option out for none`},
		{"create python --env A --meta k", `--env: A is not set here; say A=VALUE`},
		{"create python --meta k", `--meta: "k" is not KEY=VALUE`},
		{"create python --nope", "unknown flag: --nope"},
		{"fork base try-1", `"try-1" is one argument too many: fork takes SBX; say --name try-1 if that is its name`},
		{"fork base 3", `"3" is one argument too many: fork takes SBX; say --count 3 if that is its count`},
		{"fork base --name a b", `"b" is one argument too many: fork takes SBX`},
		{"fork base -n x", `--count: "x" is not a number`},
		{"fork base -n 0", "--count: 0 is not from 1 to 1000"},
		{"pause a b c", `2 arguments are too many, from "b" on: pause takes SBX`},
		{"ls base", `"base" is one argument too many: ls takes no arguments`},
		{"ls --json=maybe", `--json: "maybe" is neither true nor false`},
		{"rename base", "NAME is missing"},
		{"merge base", "FROM… is missing"},
		{"tag base x", `"x" is neither KEY=VALUE nor KEY-`},
		{"kill base one", `"one" is not a process id, as ramet ps shows them`},
		{"port base 0", `"0" is not PORT or PORT:LOCAL, PORT from 1 to 65535 and LOCAL from 0 (any that is free) to 65535`},
		{"cp a b", "one of SRC and DST, and not both, must be SBX:PATH"},
		{"update base", "nothing is to be changed: say --ttl, --idle-timeout, --idle-action, --auto-wake, --keep-snapshots or --snapshot-max-age"},
		{"tenant quota acme", "nothing is to be changed: say --sandboxes, --depth, --memory, --disk, --cpu-seconds, --network-connections, --network-mbit, --network-dns, --network-max or --no-network-max; ramet tenant show acme shows what is set"},
		{"inspect ../x", `"../x" is not a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit`},
		{"rm", "name what is to be removed, or select it by --children, --state and --meta"},
		{"token create", "--scope is required: read, exec or admin"},
		{"logs base --since 3", "--since: sequence numbers are of one process: give its id"},
	} {
		var stdout, stderr bytes.Buffer
		code := cli.Run(context.Background(), testDeps(socket, "test"), strings.Fields(c.args), cli.Stdio{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
		said := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		if code != 2 || stdout.Len() > 0 || said[0] != "ramet: "+c.want {
			t.Errorf("ramet %s: exit code %d, %q, want %q", c.args, code, said[0], c.want)
		}
		for _, line := range said[1:] {
			if len(line) > 80 || !strings.HasPrefix(line, "usage: ramet ") && !strings.HasPrefix(line, "see 'ramet ") {
				t.Errorf("ramet %s: it says besides: %q", c.args, line)
			}
		}
	}
}
