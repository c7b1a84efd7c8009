package held

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

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
	if q.stranded.Load() == 0 {
		return nil
	}
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
	case it.req.State == Released && !it.sending: // by a process that has not sent it
		q.stranded.Add(-1)
	case it.req.State == Waiting || it.req.State == Unknown && again:
		if err := q.set(it, Released, nil); err != nil {
			return err
		}
	case it.req.State == Unknown:
		return api.Errorf(api.CodeWrongState, "held request %s may have been sent: %s; it is sent again only if told so", it.id, it.req.Note)
	default:
		return api.Errorf(api.CodeWrongState, "held request %s is %s", it.id, it.req.State)
	}
	it.sending = true
	q.sending.Add(1)
	return nil
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
			it.mu.Lock()
			it.sending = false
			it.mu.Unlock()
			q.sending.Add(-1)
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
