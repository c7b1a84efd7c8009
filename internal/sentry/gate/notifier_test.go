package gate

import "testing"

// TestDeafNotifier notifies with a notifier that came out of a saved state: nobody hears it,
// and nobody may wait for that.
func TestDeafNotifier(t *testing.T) {
	(&Notifier{}).NotifyEvent(0)
	a := NewNotifier()
	for range 3 {
		a.NotifyEvent(0)
	}
	<-a.C
	select {
	case <-a.C:
		t.Error("three events are not one item")
	default:
	}
}
