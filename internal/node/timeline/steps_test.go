package timeline

import (
	"testing"

	"ramet.dev/ramet/api"
)

func TestMissingStepsAreExplained(t *testing.T) {
	steps := func(numbers ...int) (list []api.Step) {
		for _, n := range numbers {
			list = append(list, api.Step{Step: n})
		}
		return list
	}
	for _, c := range []struct {
		list   []api.Step
		number int
		want   string
	}{
		{nil, 1, ": it is not checkpointed by itself, or has run nothing"},
		{steps(0), 1, ": it has 0"},
		{steps(1, 2, 3), 4, ": it has 1 to 3"},
		{steps(3, 4), 1, ": it has 3 to 4"},
		{steps(0, 1, 2, 4), 3, ", which was dropped when the sandbox went on from an earlier one: it has 0 to 2, 4"},
		{steps(0, 2, 5, 6), 9, ": it has 0, 2, 5 to 6"},
	} {
		if got := whyNot(c.list, c.number); got != c.want {
			t.Errorf("%v without %d: %q, want %q", c.list, c.number, got, c.want)
		}
	}
}
