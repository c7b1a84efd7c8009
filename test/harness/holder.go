package harness

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Reply is what "guest ask" prints: the values of the holder's items, and those
// from before the same call changed them.
type Reply struct {
	Before map[string]string `json:"before"`
	Values map[string]string `json:"values"`
	Errors map[string]string `json:"errors"`
}

// Hold starts the holder in a sandbox.
func (n *Node) Hold(ref string, args ...string) {
	n.T.Helper()
	n.Guest(ref, append([]string{"start"}, args...)...)
}

// Ask asks the holder in ref for items and has it change them, see "guest ask".
func (n *Node) Ask(ref string, args ...string) (*Reply, error) {
	out, err := n.Exec(ref, append([]string{"ask"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	r := &Reply{}
	if err := json.Unmarshal(out.Stdout.Bytes(), r); err != nil {
		return nil, fmt.Errorf("%s: %w: exit code %d: %s", ref, err, out.ExitCode, out.Stderr.String())
	}
	return r, nil
}

// MustHold checks that all items of the holder in ref, or those named, are in
// the state want.
func (n *Node) MustHold(ref, want string, items ...string) {
	n.T.Helper()
	if err := n.Holds(ref, want, items...); err != nil {
		n.T.Fatal(err)
	}
}

// Holds is MustHold that returns what is wrong.
func (n *Node) Holds(ref, want string, items ...string) error {
	r, err := n.Ask(ref, items...)
	if err != nil {
		return err
	}
	return r.Check(ref, "", want)
}

// Change checks that all items of the holder in ref are in the state from, and
// brings them into the state to.
func (n *Node) Change(ref, from, to string) {
	n.T.Helper()
	r, err := n.Ask(ref, "="+to)
	if err == nil {
		err = r.Check(ref, from, to)
	}
	if err != nil {
		n.T.Fatal(err)
	}
}

// Check compares the values before and after a change with those that all items should have.
func (r *Reply) Check(ref, before, after string) error {
	var errs []error
	for item, e := range r.Errors {
		errs = append(errs, fmt.Errorf("%s: %s: %s", ref, item, e))
	}
	for item, v := range r.Before {
		if v != before {
			errs = append(errs, fmt.Errorf("%s: %s was %q, not %q", ref, item, v, before))
		}
	}
	for item, v := range r.Values {
		if v != after {
			errs = append(errs, fmt.Errorf("%s: %s is %q, not %q", ref, item, v, after))
		}
	}
	if len(r.Values) == 0 {
		errs = append(errs, fmt.Errorf("%s: holder has no items", ref))
	}
	return errors.Join(errs...)
}
