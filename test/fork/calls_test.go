package fork

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// untriedCalls are not made by TestSystemCalls: see the test of the list in
// internal/sentry/syscalls.
var untriedCalls = []int{
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_PRLIMIT64,
}

// TestSystemCalls has processes of root and of another user make every system call with
// arguments that may fit, and keep whatever they got: the sandbox must go on, and can be
// forked, hibernated and woken.
func TestSystemCalls(t *testing.T) {
	n := harness.NewNode(t)
	var skip []string
	for _, number := range slices.Concat(untriedCalls, archUntriedCalls) {
		skip = append(skip, strconv.Itoa(number))
	}
	for seed, user := range []string{"root", "worker"} {
		t.Run(user, func(t *testing.T) {
			n.Create(user)
			out, err := n.Run(user, api.ExecRequest{Argv: []string{"guest", "attempts", "-seed", strconv.Itoa(seed), "-skip", strings.Join(skip, ",")}, User: user}, "")
			if err != nil || !out.OK {
				t.Fatalf("%v: %s %s", err, out.Stdout.String(), out.Stderr.String())
			}
			t.Log(out.Stdout.String(), out.Stderr.String())
			child := n.Fork(user, 1)[0]
			n.Guest(child.ID, "true")
			n.Hibernate(user)
			n.Guest(user, "true")
		})
	}
}
