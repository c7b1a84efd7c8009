package archive

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

	"ramet.dev/ramet/internal/image/debian/apt"
	"ramet.dev/ramet/internal/image/debian/fault"
	"ramet.dev/ramet/internal/image/debian/pkgcache"
)

// Downloads is how many files are fetched at a time.
const Downloads = 4

const (
	fetchAttempts = 4                // the first and three more
	idleTimeout   = 60 * time.Second // without a byte, a transfer is given up
)

var errStalled = fmt.Errorf("no data for %s", idleTimeout)

// Fetcher reads files from archives. It is safe for concurrent use.
type Fetcher struct {
	client     *http.Client
	cache      *pkgcache.Cache
	retryDelay time.Duration
}

// NewFetcher returns a fetcher that keeps files in c. Without a client it makes one that
// uses the proxy that conf names. Attempts that fail are repeated after retryDelay, and
// then after twice as long each time.
func NewFetcher(client *http.Client, conf apt.Config, c *pkgcache.Cache, retryDelay time.Duration) *Fetcher {
	if client == nil {
		client = newClient(conf)
	}
	return &Fetcher{client: client, cache: c, retryDelay: retryDelay}
}

func newClient(conf apt.Config) *http.Client {
	dialer := &net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		Proxy:                 conf.Proxy,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   Downloads,
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
func (f *Fetcher) get(ctx context.Context, addr string, limit int64) ([]byte, error) {
	var data []byte
	err := f.retry(ctx, func() error {
		var buf bytes.Buffer
		err := f.transfer(ctx, addr, limit, &buf)
		data = buf.Bytes()
		return err
	})
	return data, err
}

// Store makes sure that the cache holds d, fetching it from the first of addrs
// that has it. progress is told of bytes as they arrive (and of bytes taken
// back, when a transfer starts over). It reports whether it had to fetch.
func (f *Fetcher) Store(ctx context.Context, what string, addrs []string, d pkgcache.Digest, progress func(int64)) (fetched bool, err error) {
	ok, err := f.cache.Has(ctx, d)
	if err != nil {
		return false, err
	}
	if ok {
		progress(d.Size)
		return false, nil
	}
	for i, addr := range addrs {
		err = f.retry(ctx, func() error { return f.storeOnce(ctx, what, addr, d, progress) })
		var fe *fault.FetchError
		if missing := errors.As(err, &fe) && fe.Status == http.StatusNotFound; !missing || i == len(addrs)-1 {
			break
		}
	}
	return true, err
}

func (f *Fetcher) storeOnce(ctx context.Context, what, addr string, d pkgcache.Digest, progress func(int64)) error {
	in, err := f.cache.Create()
	if err != nil {
		return err
	}
	defer in.Discard()
	// One byte more than promised is enough to see that the file is too long.
	err = f.transfer(ctx, addr, d.Size, &countingWriter{w: in, report: progress})
	var tooLong *fault.LimitError
	if errors.As(err, &tooLong) {
		err = &fault.DigestError{What: what, Want: fmt.Sprintf("%d bytes", d.Size), Got: "more"}
	}
	if err == nil && in.Size() < d.Size {
		err = &fault.FetchError{URL: apt.Redact(addr), Err: fmt.Errorf("%w after %d of %d bytes", io.ErrUnexpectedEOF, in.Size(), d.Size)}
	}
	if err == nil {
		err = in.Commit(what, d)
	}
	if err != nil {
		progress(-in.Size())
	}
	return err
}

// transfer copies the body at addr to w and fails beyond limit bytes.
func (f *Fetcher) transfer(ctx context.Context, addr string, limit int64, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return &fault.FetchError{URL: apt.Redact(addr), Err: err}
	}
	watchdog := time.AfterFunc(idleTimeout, func() { cancel(errStalled) })
	defer watchdog.Stop()
	resp, err := f.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // it repeats the URL, with any password in it
			err = ue.Err
		}
		return &fault.FetchError{URL: apt.Redact(addr), Err: cause(ctx, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &fault.FetchError{URL: apt.Redact(addr), Status: resp.StatusCode}
	}
	body := readerFunc(func(p []byte) (int, error) {
		n, err := resp.Body.Read(p)
		watchdog.Reset(idleTimeout)
		if err != nil && err != io.EOF {
			err = &fault.FetchError{URL: apt.Redact(addr), Err: cause(ctx, err)}
		}
		return n, err
	})
	n, err := io.Copy(w, io.LimitReader(body, limit+1))
	if err == nil && n > limit {
		return &fault.LimitError{What: apt.Redact(addr), Limit: limit}
	}
	return err
}

// retry repeats try while it fails in a way that another attempt may cure.
func (f *Fetcher) retry(ctx context.Context, try func() error) error {
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
	var fe *fault.FetchError
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
