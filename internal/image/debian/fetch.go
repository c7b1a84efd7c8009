package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	fetchAttempts = 4                // the first and three more
	idleTimeout   = 60 * time.Second // without a byte, a transfer is given up
)

var errStalled = fmt.Errorf("no data for %s", idleTimeout)

// fetcher reads files from archives. It is safe for concurrent use.
type fetcher struct {
	client     *http.Client
	cache      *cache
	retryDelay time.Duration
}

func newFetcher(opts *Options, c *cache) *fetcher {
	f := &fetcher{client: opts.Client, cache: c, retryDelay: opts.retryDelay}
	if f.client == nil {
		f.client = newClient(opts.conf)
	}
	return f
}

func newClient(conf aptConfig) *http.Client {
	dialer := &net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:                 conf.proxy,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   downloads,
		ForceAttemptHTTP2:     true,
		// Files are compressed already, and sizes must be those on the server.
		DisableCompression: true,
	}
	t.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	return &http.Client{Transport: t, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
			return fmt.Errorf("redirect to scheme %q refused", req.URL.Scheme)
		}
		if len(via) >= 10 {
			return errors.New("too many redirects")
		}
		return nil
	}}
}

// get returns the content at addr, at most limit bytes.
func (f *fetcher) get(ctx context.Context, addr string, limit int64) ([]byte, error) {
	var data []byte
	err := f.retry(ctx, func() error {
		var buf bytes.Buffer
		err := f.transfer(ctx, addr, limit, &buf)
		data = buf.Bytes()
		return err
	})
	return data, err
}

// store makes sure that the cache holds d, fetching it from the first of addrs
// that has it. progress is told of bytes as they arrive (and of bytes taken
// back, when a transfer starts over). It reports whether it had to fetch.
func (f *fetcher) store(ctx context.Context, what string, addrs []string, d digest, progress func(int64)) (fetched bool, err error) {
	ok, err := f.cache.has(ctx, d)
	if err != nil {
		return false, err
	}
	if ok {
		progress(d.size)
		return false, nil
	}
	for i, addr := range addrs {
		err = f.retry(ctx, func() error { return f.storeOnce(ctx, what, addr, d, progress) })
		var fe *FetchError
		if missing := errors.As(err, &fe) && fe.Status == http.StatusNotFound; !missing || i == len(addrs)-1 {
			break
		}
	}
	return true, err
}

func (f *fetcher) storeOnce(ctx context.Context, what, addr string, d digest, progress func(int64)) error {
	in, err := f.cache.create()
	if err != nil {
		return err
	}
	defer in.discard()
	// One byte more than promised is enough to see that the file is too long.
	err = f.transfer(ctx, addr, d.size, &countingWriter{w: in, report: progress})
	var tooLong *LimitError
	if errors.As(err, &tooLong) {
		err = &DigestError{What: what, Want: fmt.Sprintf("%d bytes", d.size), Got: "more"}
	}
	if err == nil && in.size < d.size {
		err = &FetchError{URL: redact(addr), Err: fmt.Errorf("%w after %d of %d bytes", io.ErrUnexpectedEOF, in.size, d.size)}
	}
	if err == nil {
		err = in.commit(what, d)
	}
	if err != nil {
		progress(-in.size)
	}
	return err
}

// transfer copies the body at addr to w and fails beyond limit bytes.
func (f *fetcher) transfer(ctx context.Context, addr string, limit int64, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return &FetchError{URL: redact(addr), Err: err}
	}
	watchdog := time.AfterFunc(idleTimeout, func() { cancel(errStalled) })
	defer watchdog.Stop()
	resp, err := f.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // it repeats the URL, with any password in it
			err = ue.Err
		}
		return &FetchError{URL: redact(addr), Err: cause(ctx, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &FetchError{URL: redact(addr), Status: resp.StatusCode}
	}
	body := readerFunc(func(p []byte) (int, error) {
		n, err := resp.Body.Read(p)
		watchdog.Reset(idleTimeout)
		if err != nil && err != io.EOF {
			err = &FetchError{URL: redact(addr), Err: cause(ctx, err)}
		}
		return n, err
	})
	n, err := io.Copy(w, io.LimitReader(body, limit+1))
	if err == nil && n > limit {
		return &LimitError{What: redact(addr), Limit: limit}
	}
	return err
}

// retry repeats try while it fails in a way that another attempt may cure.
func (f *fetcher) retry(ctx context.Context, try func() error) error {
	delay := f.retryDelay
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || attempt == fetchAttempts || ctx.Err() != nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
		delay *= 2
	}
}

// transient reports whether err came from the network or an overloaded server.
// Wrong content is not transient: asking again gives the same cached answer.
func transient(err error) bool {
	var fe *FetchError
	if !errors.As(err, &fe) {
		return false
	}
	switch fe.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return fe.Status >= 500
}

// cause prefers why the context ended over the error it led to.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// redact removes a password from an address that will be shown.
func redact(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return "an invalid URL"
	}
	return u.Redacted()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// countingWriter reports the bytes that pass to w.
type countingWriter struct {
	w      io.Writer
	report func(int64)
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.report(int64(n))
	return n, err
}
