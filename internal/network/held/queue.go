package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
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
	use    map[string]*usage // by sandbox
}

// usage is what counts against the limits of a sandbox.
type usage struct {
	requests int
	bytes    int64
}

// item is a request.
type item struct {
	id      string
	sandbox string
	number  uint64

	// mu is held while the state is changed, also on disk, and not while the request is
	// sent. It comes before that of the queue.
	mu  sync.Mutex
	req Request

	// The queue's mu guards these.
	guest chan answer // where a guest waits, nil if none does
	timer *time.Timer
	// sending says that somebody sends it, or is about to.
	sending bool
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
		items: map[string]*item{}, use: map[string]*usage{},
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
		if !r.State.Finished() {
			q.account(r.Sandbox, 1, r.Size)
		}
	}
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

// account changes the usage of a sandbox. Whoever calls it holds mu, or has the queue alone.
func (q *Queue) account(sandbox string, requests int, bytes int64) {
	u := q.use[sandbox]
	if u == nil {
		u = &usage{}
		q.use[sandbox] = u
	}
	u.requests += requests
	u.bytes += bytes
	if *u == (usage{}) {
		delete(q.use, sandbox)
	}
}

// reserve makes room for a request or for bytes of one.
func (q *Queue) reserve(sandbox string, requests int, bytes, body int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var u usage
	if q.use[sandbox] != nil {
		u = *q.use[sandbox]
	}
	switch {
	case u.requests+requests > q.limits.Requests:
		return api.Errorf(api.CodeLimit, "%d requests are held, which is the limit", q.limits.Requests)
	case body > q.limits.Body:
		return api.Errorf(api.CodeLimit, "the body has more than %d bytes, which is the limit", q.limits.Body)
	case u.bytes+bytes > q.limits.Bytes:
		return api.Errorf(api.CodeLimit, "held requests have %d bytes, which is the limit", q.limits.Bytes)
	}
	q.account(sandbox, requests, bytes)
	return nil
}

func (q *Queue) free(sandbox string, requests int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.account(sandbox, -requests, -bytes)
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
	if err := q.reserve(o.Sandbox, 1, 0, 0); err != nil {
		return nil, err
	}
	var size int64
	id := newID()
	defer func() {
		if err != nil {
			q.free(o.Sandbox, 1, size)
			err = errors.Join(err, q.disk.remove(q.disk.body(id)))
		}
	}()
	body := io.Reader(http.NoBody)
	if r.Body != nil {
		body = r.Body
	}
	_, digest, err := q.disk.spool(id, body, func(n int64) error {
		if err := q.reserve(o.Sandbox, 0, n, size+n); err != nil {
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

// setTimer has a request expire that was made at a time. Whoever calls it holds mu, or has
// the queue alone.
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
func (q *Queue) Sending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, it := range q.items {
		if it.sending {
			n++
		}
	}
	return n
}

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
	stays := it.req.State == Waiting || state == Dropped && (it.req.State == Unknown || it.req.State == Released && !q.isSending(it))
	if !stays {
		return api.Errorf(api.CodeWrongState, "held request %s is %s", it.id, it.req.State)
	}
	if err := q.set(it, state, nil); err != nil {
		return err
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
	q.account(it.sandbox, -1, -it.req.Size)
	q.mu.Unlock()
	return errors.Join(q.disk.remove(q.disk.body(it.id)), q.prune(it.sandbox, it, q.limits.Finished))
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

// Release sends a request, and waits for the answer or for ctx, without which the sending
// goes on. A request that is unknown is sent only if again says so: the server may get it
// twice then.
func (q *Queue) Release(ctx context.Context, id string, again bool) (Request, error) {
	it, err := q.find(id)
	if err != nil {
		return Request{}, err
	}
	if err := q.release(it, again); err != nil {
		return Request{}, err
	}
	return q.sendAll(ctx, it)
}

// ReleaseSandbox sends all requests of a sandbox that wait, or were released and never sent, one
// after the other in the order in which they came. Once it has been decided, which is on disk, all of them are
// sent, if need be by the next process. It returns after the first one that fails.
func (q *Queue) ReleaseSandbox(ctx context.Context, sandbox string) error {
	var items []*item
	for _, r := range q.List(sandbox) {
		it, err := q.find(r.ID)
		if r.State != Waiting && r.State != Released || err != nil {
			continue
		}
		if err := q.release(it, false); err != nil {
			if api.CodeOf(err) == api.CodeWrongState {
				continue // somebody else has decided
			}
			return err
		}
		items = append(items, it)
	}
	_, err := q.sendAll(ctx, items...)
	return err
}

// Resume sends what was released before this process began, of the sandboxes that known has. Other
// requests stay released: ReleaseSandbox sends them.
func (q *Queue) Resume(ctx context.Context, known func(sandbox string) bool) error {
	var items []*item
	for _, r := range q.List("") {
		it, err := q.find(r.ID)
		if err == nil && r.State == Released && known(r.Sandbox) && q.release(it, false) == nil {
			items = append(items, it) // else somebody else sends it
		}
	}
	_, err := q.sendAll(ctx, items...)
	return err
}

// release decides that a request is sent, by the caller: it is for sendAll from then on.
func (q *Queue) release(it *item, again bool) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	switch {
	case it.req.State == Released && !q.isSending(it): // by a process that has not sent it
		q.setSending(it, true)
		return nil
	case it.req.State == Waiting || it.req.State == Unknown && again:
		err := q.set(it, Released, nil)
		q.setSending(it, err == nil)
		return err
	case it.req.State == Unknown:
		return api.Errorf(api.CodeWrongState, "held request %s may have been sent: %s; it is sent again only if told so", it.id, it.req.Note)
	}
	return api.Errorf(api.CodeWrongState, "held request %s is %s", it.id, it.req.State)
}

func (q *Queue) isSending(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return it.sending
}

func (q *Queue) setSending(it *item, is bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it.sending = is
}

// sendAll sends released requests in their order, in the background. It returns the last
// one that was sent, after all of them or the first one that failed.
func (q *Queue) sendAll(ctx context.Context, items ...*item) (Request, error) {
	if !q.enter() {
		return Request{}, errClosed
	}
	type outcome struct {
		last Request
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		defer q.work.Done()
		var o outcome
		for _, it := range items {
			err := q.send(it)
			q.setSending(it, false)
			o.last = q.view(it)
			if err != nil && o.err == nil {
				o.err = fmt.Errorf("send held request %s: %w", it.id, err)
			}
		}
		done <- o
	}()
	select {
	case o := <-done:
		return o.last, o.err
	case <-ctx.Done():
		return Request{}, fmt.Errorf("wait for held requests: %w", context.Cause(ctx))
	}
}

// send sends a released request.
func (q *Queue) send(it *item) error {
	body, request, err := q.begin(it)
	if err != nil {
		return err
	}
	defer body.Close()
	ctx, cancel := context.WithCancel(q.ctx)
	res, err := q.sender.Send(ctx, request, body)

	it.mu.Lock()
	defer it.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotSent):
		cancel()
		err = errors.Join(err, q.settle(it, Waiting, note(err)))
		q.mu.Lock()
		defer q.mu.Unlock()
		q.setTimer(it, it.req.Created)
		return err
	case err != nil:
		cancel()
		q.tell(it, answer{res: problem(http.StatusBadGateway, "Request is unknown", "the request was sent, and the server has not answered", it.id)})
		return errors.Join(err, q.settle(it, Unknown, note(err)))
	}
	res.Body = &lastBody{res.Body, cancel}
	err = q.settle(it, Sent, func(r *Request) { r.Status = res.StatusCode })
	if !q.tell(it, answer{res: res}) {
		// Nobody reads it, and the server may not be done.
		if !q.enter() {
			return errors.Join(err, res.Body.Close())
		}
		go func() {
			defer q.work.Done()
			defer res.Body.Close()
			_, _ = io.CopyN(io.Discard, res.Body, maxUnread)
		}()
	}
	if err != nil {
		return err
	}
	return q.clean(it)
}

// begin makes a released request one that is being sent.
func (q *Queue) begin(it *item) (hostfs.File, *Request, error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.req.State != Released {
		return nil, nil, api.Errorf(api.CodeWrongState, "it is %s", it.req.State)
	}
	body, err := q.disk.fs.OpenFile(q.disk.body(it.id), os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read body: %w", err), q.set(it, Waiting, note(err)))
	}
	if err := q.set(it, Sending, nil); err != nil {
		return nil, nil, errors.Join(err, body.Close())
	}
	request := it.req
	return body, &request, nil
}

// settle says what became of a request that was being sent. If the disk cannot be told, it
// still says that the request is being sent, and the request is unknown: it is never sent
// again by itself.
func (q *Queue) settle(it *item, state State, edit func(*Request)) error {
	next := it.req
	next.State, next.Changed = state, q.now().UTC()
	edit(&next)
	if err := q.disk.write(&next); err != nil {
		next.State, next.Note = Unknown, "what became of it could not be written down"
		it.req = next
		return err
	}
	it.req = next
	return nil
}

// maxUnread is how much is read of an answer that nobody waits for.
const maxUnread = 64 << 10

func note(err error) func(*Request) {
	return func(r *Request) { r.Note = err.Error() }
}

// lastBody is the body of an answer, with which the context of its request ends.
type lastBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *lastBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
