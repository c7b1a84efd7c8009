package drain

import "testing"

func TestWaitReturnsWhenAllHaveLeft(t *testing.T) {
	var g Gate
	for range 2 {
		if !g.Enter() {
			t.Fatal("an open gate refuses")
		}
	}
	g.Close()
	if g.Enter() || !g.Closed() {
		t.Error("a closed gate lets in")
	}
	waited := make(chan struct{})
	for range 2 {
		go func() {
			g.Wait()
			waited <- struct{}{}
		}()
	}
	g.Leave()
	select {
	case <-waited:
		t.Fatal("Wait returned while a request was inside")
	default:
	}
	g.Leave()
	<-waited
	<-waited
	g.Wait() // nobody is inside
}
