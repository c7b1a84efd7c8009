package guest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
)

// withoutStack returns the reason of an error of gVisor's state package, which has the
// stack of the goroutine that met it in its text. The log gets all of it.
func withoutStack(err error) error {
	var failed *state.ErrState
	if !errors.As(err, &failed) {
		return err
	}
	log.Warningf("State: %v", err)
	var reason error = failed
	for next := errors.Unwrap(reason); next != nil; next = errors.Unwrap(next) {
		reason = next
	}
	line, _, _ := strings.Cut(reason.Error(), "\n")
	return errors.New(line)
}

// unsavable matches the state package's error about a type that cannot be saved.
var unsavable = regexp.MustCompile(`^type "\*?([^"]+)" is not known$|^struct \*?(\S+) does not implement`)

// unsavableType returns the type that an error of withoutStack is about, or "".
func unsavableType(err error) string {
	m := unsavable.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// saveError says in one sentence why the kernel was not saved, and which process has the
// object that is in the way, if one has. The kernel must be paused.
func saveError(ctx context.Context, k *kernel.Kernel, err error) error {
	err = withoutStack(err)
	name := unsavableType(err)
	if name == "" {
		return api.Errorf(api.CodeInternal, "save kernel state: %w", err)
	}
	if holder := holderOf(ctx, k, name); holder != "" {
		return api.Errorf(api.CodeUnsupported, "%s, an object that cannot be saved (%s): close it, or end the process", holder, name)
	}
	return api.Errorf(api.CodeUnsupported, "an object in the sandbox cannot be saved (%s)", name)
}

// holderOf says which process holds an object of the type that name names: the object, or an
// object that keeps it, is behind a descriptor of the process.
func holderOf(ctx context.Context, k *kernel.Kernel, name string) (holder string) {
	pids := k.RootPIDNamespace()
	for _, tg := range k.TaskSet().Root.ThreadGroups() {
		leader := tg.Leader()
		var files *kernel.FDTable
		leader.WithMuLocked(func(t *kernel.Task) { files = t.FDTable() })
		if files == nil {
			continue // it has ended
		}
		files.ForEach(ctx, func(fd int32, f *vfs.FileDescription, _ kernel.FDFlags) bool {
			if !keepsType(reflect.TypeOf(f.Impl()), name, keptDepth) {
				return true
			}
			holder = fmt.Sprintf("process %d (%s) holds descriptor %d", pids.IDOfThreadGroup(tg), leader.Name(), fd)
			return false
		})
		if holder != "" {
			return holder
		}
	}
	return ""
}

// keptDepth is how deep in an object keepsType looks.
const keptDepth = 3

// keepsType reports whether a type has the name, or has a field of a type that has it.
func keepsType(t reflect.Type, name string, depth int) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.String() == name {
		return true
	}
	if t.Kind() != reflect.Struct || depth == 0 {
		return false
	}
	for i := range t.NumField() {
		if keepsType(t.Field(i).Type, name, depth-1) {
			return true
		}
	}
	return false
}
