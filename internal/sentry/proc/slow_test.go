package proc

import (
	"testing"
	"testing/synctest"
	gotime "time"
)

// TestSlowStartsAreReported lets starts take their time: one that takes too long is reported, and not more
// than one in a minute.
func TestSlowStartsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slowStarts
		reports := 0
		report := func() { reports++ }
		start := func(takes gotime.Duration, want int) {
			t.Helper()
			stop := s.watch(report)
			<-gotime.After(takes) // of the bubble, which takes no time
			synctest.Wait()
			stop()
			if reports != want {
				t.Errorf("after a start that took %v there are %d reports, want %d", takes, reports, want)
			}
		}
		start(slowStart-1, 0)
		start(slowStart+1, 1)
		start(slowStart+1, 1)
		<-gotime.After(reportEvery)
		start(slowStart+1, 2)
	})
}
