package fsview

import "slices"

// ForkPoint is a moment in the history of files: the state of a sentry when it was
// frozen, or now. A history is the fork points at which the state of one sentry became
// that of another, from the created sandbox on. Ids of sandboxes do not serve for this,
// because a rollback or a promotion gives a sandbox the history of another.
type ForkPoint struct {
	Freeze string `json:"freeze"` // id; empty for now
	Line   string `json:"line"`   // the sentry's key
	// Seq orders the fork points of one sentry.
	Seq int64 `json:"seq"`
}

// Extend returns history with one more fork point, and leaves history as it is.
func Extend(history []ForkPoint, next ForkPoint) []ForkPoint {
	return append(slices.Clone(history), next)
}

// MergeBase returns the last fork point that two histories have in common. ok is false
// if only the image is common. No history is empty, and at most one of the two goes on
// to now in one sentry.
func MergeBase(a, b []ForkPoint) (p ForkPoint, ok bool) {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n < len(a) && n < len(b) && a[n].Line == b[n].Line {
		if a[n].Seq < b[n].Seq {
			return a[n], true
		}
		return b[n], true
	}
	if n == 0 {
		return ForkPoint{}, false
	}
	return a[n-1], true
}

// CommonAncestor returns the last id that two lineages have in common, or "".
func CommonAncestor(a, b []string) string {
	common := ""
	for i := 0; i < len(a) && i < len(b) && a[i] == b[i]; i++ {
		common = a[i]
	}
	return common
}
