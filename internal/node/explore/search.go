package explore

import (
	"cmp"
	"math"
	"slices"

	"ramet.dev/ramet/api"
)

// candidate is an attempt that has succeeded.
type candidate struct {
	index int
	score float64
	order int // of ends; attempts of the same score have the order of their indexes if it is 0
}

// rank orders candidates, the best one first.
func (s *scorer) rank(list []candidate) []candidate {
	slices.SortFunc(list, func(a, b candidate) int {
		switch {
		case s.better(a.score, b.score):
			return -1
		case s.better(b.score, a.score):
			return 1
		}
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
	})
	return list
}

// indexes returns the indexes of at most n candidates.
func indexes(list []candidate, n int) []int {
	out := make([]int, 0, min(n, len(list)))
	for _, c := range list[:min(n, len(list))] {
		out = append(out, c.index)
	}
	return out
}

// budget returns RAMET_BUDGET of a round, which is counted from 1.
func budget(s *api.ExploreSearch, round int) float64 {
	if s.Strategy != api.SearchHalving {
		return s.Budget
	}
	return s.Budget * math.Pow(s.Factor, float64(round-1))
}

// halved returns how many of n attempts of a round of halving get into the next one.
func halved(s *api.ExploreSearch, n int) int {
	return max(s.Survivors, min(n-1, int(math.Ceil(float64(n)/s.Factor))))
}

// decision is what follows a round.
type decision struct {
	survivors []int
	over      string // why no round follows; empty if one does
}

// decide returns what follows a round that width attempts ran in, of which ranked have succeeded.
func decide(s *api.ExploreSearch, limits *api.ExploreLimits, round, width int, ranked []candidate) decision {
	switch {
	case s.Strategy == api.SearchAll || s.Strategy == api.SearchFirst:
		return decision{over: "all attempts have ended"}
	case len(ranked) == 0:
		return decision{over: "no attempt of the round succeeded"}
	case s.Strategy == api.SearchHalving:
		n := halved(s, width)
		d := decision{survivors: indexes(ranked, n)}
		switch {
		case len(d.survivors) <= s.Survivors:
			d.over = "as few attempts are left as there should be"
		case round >= s.Rounds:
			d.over = "the last round has ended"
		}
		return d
	}
	d := decision{survivors: indexes(ranked, s.Survivors)}
	switch {
	case round >= s.Rounds:
		d.over = "the last round has ended"
	case limits.Depth > 0 && round >= limits.Depth:
		d.over = "the limit of depth is reached"
	}
	return d
}

// shrunk returns how many attempts to ask for after n were refused, or 0 if the refusal stands.
func shrunk(n, least int, err error) int {
	if least == 0 || n <= least {
		return 0
	}
	e := api.AsError(err)
	switch e.Code {
	case api.CodeLimit, api.CodeNoMemory, api.CodeNoSpace:
	default:
		return 0
	}
	next := n / 2
	if x := e.Exceeded; x != nil && x.Limit == "sandboxes" {
		if free := int(float64(x.Max) - x.Used); free < n {
			next = free
		}
	}
	return max(least, min(next, n-1))
}
