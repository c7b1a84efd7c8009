package integration

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// untriedCalls are not made by TestSystemCalls: see the test of the list in
// internal/sentry/syscalls.
var untriedCalls = []int{
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_PRLIMIT64,
}

// TestSystemCalls has processes of root and of another user make every system call with
// arguments that may fit, and keep whatever they got: the sandbox must go on, and can be
// forked, hibernated and woken.
func TestSystemCalls(t *testing.T) {
	n := newNode(t)
	var skip []string
	for _, number := range untriedCalls {
		skip = append(skip, strconv.Itoa(number))
	}
	for seed, user := range []string{"root", "worker"} {
		t.Run(user, func(t *testing.T) {
			n.create(user)
			out, err := n.run(user, api.ExecRequest{Argv: []string{"guest", "attempts", "-seed", strconv.Itoa(seed), "-skip", strings.Join(skip, ",")}, User: user}, "")
			if err != nil || !out.OK {
				t.Fatalf("%v: %s %s", err, out.stdout.String(), out.stderr.String())
			}
			t.Log(out.stdout.String(), out.stderr.String())
			child := n.fork(user, 1)[0]
			n.guest(child.ID, "true")
			n.hibernate(user)
			n.guest(user, "true")
		})
	}
}
