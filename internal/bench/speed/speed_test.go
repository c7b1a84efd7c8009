package speed

import "testing"

// TestBest: the best and the median of the samples, of which there may be none.
func TestBest(t *testing.T) {
	var m Meter
	if best, usual := m.Best(); best != 0 || usual != 0 {
		t.Errorf("without samples: %v, %v", best, usual)
	}
	if took := m.Sample(); took <= 0 {
		t.Errorf("a piece of work took %v ms", took)
	}
	for _, c := range []struct {
		took        []float64
		best, usual float64
	}{{[]float64{3}, 3, 3}, {[]float64{4, 1}, 1, 2.5}, {[]float64{9, 1, 5}, 1, 5}} {
		if best, usual := (&Meter{took: c.took}).Best(); best != c.best || usual != c.usual {
			t.Errorf("%v: %v, %v", c.took, best, usual)
		}
	}
}
