package faultfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// mostOps bounds the operations of a change that can be swept.
const mostOps = 1000

// Sweep makes each operation of a change fail once, in each way that it can, until the change
// passes without a fault. Each time it runs try as a test of its own, with a file system that
// has a fault planned.
//
// try prepares the files, calls Do with the change and asserts what holds after it.
func Sweep(t *testing.T, try func(t *testing.T, c *Change)) {
	t.Helper()
	for _, fault := range Faults {
		for n := 1; ; n++ {
			c := &Change{FS: &FS{}, fault: fault, n: n}
			t.Run(fmt.Sprintf("%s/%d", fault.Name, n), func(t *testing.T) { try(t, c) })
			if !c.done {
				t.Fatalf("%s: the test has not called Do", fault.Name)
			}
			if c.Failed == nil {
				break
			}
			if n == mostOps {
				t.Fatalf("%s: the change has more than %d operations", fault.Name, mostOps)
			}
		}
	}
}

// Change is one run of a Sweep.
type Change struct {
	// FS is the file system to use. Only operations during Do fail.
	FS *FS
	// Is returns whether an error is that of a fault. nil stands for errors.Is.
	Is func(err error, f Fault) bool
	// Failed is the operation that failed first during Do, nil if none did.
	Failed *Event

	fault Fault
	n     int
	done  bool
}

// Fault returns the name of the fault.
func (c *Change) Fault() string { return c.fault.Name }

// Do runs a change with the fault, which is over when Do returns. It returns the error of the
// change. There must be one, unless tolerated says that the change may go on without the
// operation that failed first. It must be the error of the fault, with the path of an operation
// that failed.
func (c *Change) Do(t *testing.T, change func() error, tolerated func(Event) bool) error {
	t.Helper()
	c.FS.Plan(c.fault, c.n)
	err := change()
	failed := c.FS.Heal()
	if c.done = true; len(failed) > 0 {
		c.Failed = &failed[0]
	}
	named := func(e Event) bool { return strings.Contains(err.Error(), e.Path) }
	switch {
	case c.Failed == nil && err != nil:
		t.Fatalf("without a fault: %v", err)
	case c.Failed == nil:
	case err == nil:
		if tolerated == nil || !tolerated(*c.Failed) {
			t.Fatalf("%s of %s failed by %s, and nobody was told", c.Failed.Op, c.Failed.Path, c.fault.Name)
		}
	case !c.is(err) || !slices.ContainsFunc(failed, named):
		t.Errorf("%s of %s failed by %s, and the error is %q", c.Failed.Op, c.Failed.Path, c.fault.Name, err)
	}
	return err
}

func (c *Change) is(err error) bool {
	if c.Is != nil {
		return c.Is(err, c.fault)
	}
	return errors.Is(err, c.fault.Err)
}
