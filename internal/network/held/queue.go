package held

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Queue is the requests of all sandboxes that are held. It is safe for concurrent use; one
// process at a time may have the directory.
type Queue struct {
	disk   disk
	sender Sender
	limits Limits
	now    func() time.Time

	ctx  context.Context // ends with the queue
	stop context.CancelFunc
	work sync.WaitGroup // requests that are being sent, and timers that fire

	mu     sync.Mutex
	closed bool
	items  map[string]*item
	number uint64

	room room

	// stranded is how many requests an earlier process released that this one has not begun to send,
	// sending how many are being sent or are about to be.
	stranded, sending atomic.Int64
}

// item is a request.
type item struct {
	id     string
	number uint64

	// mu is held while the state is changed, also on disk, and not while the request is
	// sent. It comes before that of the queue.
	mu  sync.Mutex
	req Request
	// sending says that somebody sends it, or is about to.
	sending bool

	// The queue's mu guards these.
	sandbox string      // whose it is; it is changed with mu held, too
	guest   chan answer // where a guest waits, nil if none does
	timer   *time.Timer
}

func newItem(r Request) *item {
	return &item{id: r.ID, sandbox: r.Sandbox, number: r.Number, req: r}
}

// answer is what a guest is told.
type answer struct {
	res *http.Response
	err error
}

// Open reads the requests in a directory, and makes it if there is none. Requests that were
// being sent are unknown from then on. Those that were released are sent by Resume.
func Open(fs hostfs.FS, dir string, sender Sender, limits Limits) (*Queue, error) {
	q := &Queue{
		disk: disk{fs, dir}, sender: sender, limits: limits, now: time.Now,
		items: map[string]*item{}, room: room{limits: limits, use: map[string]usage{}},
	}
	requests, err := q.disk.load()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(requests, func(a, b *Request) int { return cmp.Compare(a.Number, b.Number) })
	q.ctx, q.stop = context.WithCancel(context.Background()) // sending outlives whoever asked for it
	for _, r := range requests {
		if r.State.Finished() && q.now().Sub(r.Changed) > limits.Age {
			// Its sandbox may be gone, so that nobody else makes room.
			if err := q.disk.remove(q.disk.record(r.ID)); err != nil {
				q.stop()
				return nil, err
			}
			continue
		}
		if r.State == Sending {
			r.State, r.Changed, r.Note = Unknown, q.now(), "the gateway ended while it was being sent"
			if err := q.disk.write(r); err != nil {
				q.stop()
				return nil, err
			}
		}
		it := newItem(*r)
		q.items[r.ID] = it
		q.number = max(q.number, r.Number)
		if r.State == Released {
			q.stranded.Add(1)
		}
		if !r.State.Finished() {
			q.room.add(r.Sandbox, 1, r.Size)
		}
	}
	q.mu.Lock() // those that are overdue are finished from now on
	defer q.mu.Unlock()
	for _, it := range q.items {
		if it.req.State == Waiting {
			q.setTimer(it, it.req.Created)
		}
	}
	return q, nil
}

// Close ends what is being sent and waits for it. Guests that wait are told nothing.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	for _, it := range q.items {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
	q.mu.Unlock()
	q.stop()
	q.work.Wait()
}

// enter counts work that Close waits for.
func (q *Queue) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.work.Add(1)
	}
	return !q.closed
}

// Add holds a request. It reads the body to its end first; once Add has returned without an
// error, the request survives this process.
func (q *Queue) Add(o Origin, r *http.Request) (Request, error) {
	it, err := q.add(o, r, nil)
	if err != nil {
		return Request{}, err
	}
	return q.view(it), nil
}

// add is Add for a guest that waits at guest.
func (q *Queue) add(o Origin, r *http.Request, guest chan answer) (_ *item, err error) {
	if !q.enter() {
		return nil, errClosed
	}
	defer q.work.Done()
	if err := q.room.reserve(o.Sandbox, 1, 0, 0); err != nil {
		return nil, err
	}
	var size int64
	id := newID()
	defer func() {
		if err != nil {
			q.room.add(o.Sandbox, -1, -size)
			err = errors.Join(err, q.disk.remove(q.disk.body(id)))
		}
	}()
	body := io.Reader(http.NoBody)
	if r.Body != nil {
		body = r.Body
	}
	_, digest, err := q.disk.spool(id, body, func(n int64) error {
		if err := q.room.reserve(o.Sandbox, 0, n, size+n); err != nil {
			return err
		}
		size += n
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	q.number++
	number := q.number
	q.mu.Unlock()
	now := q.now().UTC()
	it := newItem(Request{
		ID: id, Origin: o, Method: r.Method, Target: r.URL.RequestURI(), Host: r.Host, Header: r.Header.Clone(), Trailer: r.Trailer.Clone(),
		Size: size, Digest: digest, State: Waiting, Number: number, Created: now, Changed: now,
	})
	it.guest = guest
	if err := q.disk.write(&it.req); err != nil {
		// It may be there in spite of the error, and the guest is told that it is not.
		return nil, errors.Join(err, q.disk.remove(q.disk.record(id)))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items[id] = it
	q.setTimer(it, now)
	return it, nil
}

var errClosed = api.Errorf(api.CodeUnavailable, "the gateway ends")

// setTimer has a request expire that was made at a time. Whoever calls it holds mu.
func (q *Queue) setTimer(it *item, created time.Time) {
	if q.closed {
		return
	}
	it.timer = time.AfterFunc(max(0, created.Add(q.limits.Age).Sub(q.now())), func() {
		if q.enter() {
			defer q.work.Done()
			// A disk that fails leaves it waiting: the next process tries again.
			_ = q.finish(it, Expired, "it was not decided in time")
		}
	})
}

// List returns the requests of a sandbox, or of all if it is "", in the order in which they
// came and without their headers.
func (q *Queue) List(sandbox string) []Request {
	q.mu.Lock()
	items := make([]*item, 0, len(q.items))
	for _, it := range q.items {
		if sandbox == "" || it.sandbox == sandbox {
			items = append(items, it)
		}
	}
	q.mu.Unlock()
	list := make([]Request, len(items))
	for i, it := range items {
		list[i] = q.view(it)
	}
	slices.SortFunc(list, func(a, b Request) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// view returns a copy of a request without its headers.
func (q *Queue) view(it *item) Request {
	it.mu.Lock()
	defer it.mu.Unlock()
	r := it.req
	r.Header, r.Trailer = nil, nil
	return r
}

// Get returns a request without its headers.
func (q *Queue) Get(id string) (Request, error) {
	it, err := q.find(id)
	if err != nil {
		return Request{}, err
	}
	return q.view(it), nil
}

// Sending returns how many requests are being sent, or are about to be.
func (q *Queue) Sending() int { return int(q.sending.Load()) }

func (q *Queue) find(id string) (*item, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[id]
	if it == nil {
		return nil, api.NotFound("held request", id)
	}
	return it, nil
}

// set changes the state of a request, on disk first. Whoever calls it holds the item's mu.
// After an error the state is the old one, and the record says so if the disk lets it.
func (q *Queue) set(it *item, state State, edit func(*Request)) error {
	next := it.req
	next.State, next.Changed, next.Note = state, q.now().UTC(), ""
	if edit != nil {
		edit(&next)
	}
	if err := q.disk.write(&next); err != nil {
		return errors.Join(err, q.disk.write(&it.req))
	}
	it.req = next
	return nil
}

// Drop makes sure that a request is never sent.
func (q *Queue) Drop(id string) error {
	it, err := q.find(id)
	if err != nil {
		return err
	}
	return q.finish(it, Dropped, "it was dropped")
}

// DropSandbox drops all requests of a sandbox that are not being sent. With forget it also removes
// the records of those that are finished: nobody asks for them any more.
func (q *Queue) DropSandbox(sandbox string, forget bool) error {
	var errs []error
	for _, r := range q.List(sandbox) {
		if !r.State.Finished() {
			if err := q.Drop(r.ID); err != nil && api.CodeOf(err) != api.CodeWrongState {
				errs = append(errs, err)
			}
		}
	}
	if forget {
		errs = append(errs, q.prune(sandbox, nil, 0))
	}
	return errors.Join(errs...)
}

// finish ends a request that is not being sent, and tells the guest why.
func (q *Queue) finish(it *item, state State, why string) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	stays := it.req.State == Waiting || state == Dropped && (it.req.State == Unknown || it.req.State == Released && !it.sending)
	if !stays {
		return api.Errorf(api.CodeWrongState, "held request %s is %s", it.id, it.req.State)
	}
	stranded := it.req.State == Released
	if err := q.set(it, state, nil); err != nil {
		return err
	}
	if stranded {
		q.stranded.Add(-1)
	}
	q.tell(it, answer{res: problem(http.StatusForbidden, "Request is dropped", "the request was held, and "+why, it.id)})
	return q.clean(it)
}

// tell gives a guest its answer, and reports whether one waited.
func (q *Queue) tell(it *item, a answer) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.guest == nil {
		return false
	}
	it.guest <- a // it has room for one
	it.guest = nil
	return true
}

// leave makes a guest no longer wait. If its answer came in the meantime, leave returns it.
func (q *Queue) leave(it *item, guest chan answer) (answer, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.guest = nil
	select {
	case a := <-guest:
		return a, true
	default:
		return answer{}, false
	}
}

// clean removes the body of a finished request, and the oldest records if there are too
// many. Whoever calls it holds the item's mu.
func (q *Queue) clean(it *item) error {
	q.mu.Lock()
	if it.timer != nil {
		it.timer.Stop()
	}
	q.room.add(it.sandbox, -1, -it.req.Size)
	q.mu.Unlock()
	return errors.Join(q.disk.remove(q.disk.body(it.id)), q.prune(it.req.Sandbox, it, q.limits.Finished))
}

// prune forgets the oldest finished requests of a sandbox but for so many. The caller holds the mu
// of last, one that has just finished, or last is nil.
func (q *Queue) prune(sandbox string, last *item, keep int) error {
	q.mu.Lock()
	var done []*item
	for _, it := range q.items {
		// An item whose mu another one holds is not finished, or will call prune itself.
		if it == last || it.sandbox == sandbox && it.mu.TryLock() {
			if it.req.State.Finished() {
				done = append(done, it)
			}
			if it != last {
				it.mu.Unlock()
			}
		}
	}
	slices.SortFunc(done, func(a, b *item) int { return cmp.Compare(a.number, b.number) })
	done = done[:max(0, len(done)-keep)]
	for _, it := range done {
		delete(q.items, it.id)
	}
	q.mu.Unlock()
	var errs []error
	for _, it := range done {
		errs = append(errs, q.disk.remove(q.disk.record(it.id)))
	}
	return errors.Join(errs...)
}
