package codectx

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/context"
)

// fakePipe holds numbers, each a byte of a pipe.
type fakePipe struct {
	orderedPipe
	mu   sync.Mutex
	held []int
}

func (p *fakePipe) read(most int) []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.held[:min(most, len(p.held))]
	if n, err := p.into(make([]byte, most)).CopyOut(context.Background(), make([]byte, len(got))); n != len(got) || err != nil {
		panic(fmt.Sprint(n, err))
	}
	p.held = p.held[len(got):]
	return got
}

func newFakeOrder() (*order, []*fakePipe) {
	o, pipes := &order{}, []*fakePipe{{}, {}, {}}
	for _, p := range pipes {
		p.queued = func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.held)
		}
		o.pipes = append(o.pipes, &p.orderedPipe)
	}
	return o, pipes
}

// TestOrder writes numbers to three pipes while somebody reads them: they come in the
// order in which each writer has written his own.
func TestOrder(t *testing.T) {
	const writers, numbers = 3, 20_000
	o, pipes := newFakeOrder()
	var all sync.WaitGroup
	for w := range writers {
		rng := rand.New(rand.NewPCG(uint64(w), 1))
		all.Go(func() {
			for i := 0; i < numbers; {
				to := rng.IntN(len(pipes))
				for pipes[to].queued() > 100 {
					runtime.Gosched() // it is full
				}
				pipes[to].mu.Lock()
				for range min(1+rng.IntN(3), numbers-i) {
					pipes[to].held = append(pipes[to].held, i*writers+w)
					i++
				}
				pipes[to].mu.Unlock()
				o.note(to)
			}
		})
	}
	var last [writers]int
	for got := 0; got < writers*numbers; {
		pipe, most := o.next()
		if most == 0 {
			runtime.Gosched()
			continue
		}
		read := pipes[pipe].read(1 + rand.IntN(most))
		if len(read) == 0 {
			t.Fatal("it is not there")
		}
		for _, n := range read {
			if w := n % writers; n < last[w] {
				t.Fatalf("%d came after %d", n/writers, last[w]/writers)
			} else {
				last[w] = n
			}
		}
		got += len(read)
	}
	all.Wait()
	if pipe, most := o.next(); most != 0 || len(o.writes) != 0 {
		t.Errorf("pipe %d has %d more", pipe, most)
	}
}

// TestOrderIsBounded: a guest that has written much in small pieces, or reads its own
// pipes, loses nothing else.
func TestOrderIsBounded(t *testing.T) {
	o, pipes := newFakeOrder()
	write := func(to, number int) {
		pipes[to].held = append(pipes[to].held, number)
		o.note(to)
	}
	for i := range 3 * maxWrites {
		write(i%2, i)
	}
	write(2, 3*maxWrites)
	if len(o.writes) > maxWrites+1 {
		t.Errorf("it keeps %d writes", len(o.writes))
	}
	pipes[0].held = pipes[0].held[:maxWrites/2]
	var got []int
	for pipe, most := o.next(); most > 0; pipe, most = o.next() {
		read := pipes[pipe].read(most)
		if len(read) == 0 {
			o.skip()
		}
		got = append(got, read...)
	}
	write(1, 0)
	o.stop()
	pipes[1].held = append(pipes[1].held, 1)
	if _, most := o.next(); most != 1 {
		t.Errorf("%d are left of one that was written before the end", most)
	}
	pipes[1].read(1)
	if _, most := o.next(); most != 0 {
		t.Errorf("%d come after the end", most)
	}
	if !slices.IsSorted(got[:maxWrites/2]) || len(got) != maxWrites/2+3*maxWrites/2+1 {
		t.Errorf("%d numbers came", len(got))
	}
}
