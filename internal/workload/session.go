package workload

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// labelKey is the metadata by which a session finds its sandboxes and snapshots. Children inherit
// it.
const labelKey = "ramet.session"

// closeTimeout bounds the cleanup of a session whose context has ended.
const closeTimeout = 60 * time.Second

// Session is a group of sandboxes and snapshots that are destroyed together. It may be used
// concurrently.
type Session struct {
	c    *client.Client
	name string
}

// Open returns a session with a unique name that begins with purpose.
func Open(c *client.Client, purpose string) *Session {
	var b [3]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return &Session{c: c, name: purpose + "-" + hex.EncodeToString(b[:])}
}

// Name returns the name of the session.
func (s *Session) Name() string { return s.name }

func (s *Session) label() map[string]string { return map[string]string{labelKey: s.name} }

// Create makes a sandbox that belongs to the session. A name is optional.
func (s *Session) Create(ctx context.Context, image, name string) (*api.Sandbox, error) {
	return s.c.Sandboxes.Create(ctx, api.CreateRequest{Image: image, Name: name, Metadata: s.label()})
}

// CreateLimited makes a sandbox with limits.
func (s *Session) CreateLimited(ctx context.Context, image string, limits api.Limits) (*api.Sandbox, error) {
	return s.c.Sandboxes.Create(ctx, api.CreateRequest{Image: image, Limits: limits, Metadata: s.label()})
}

// CreateNetworked makes a sandbox with a network, or without one if it is nil.
func (s *Session) CreateNetworked(ctx context.Context, image string, network *api.NetworkRequest) (*api.Sandbox, error) {
	return s.c.Sandboxes.Create(ctx, api.CreateRequest{Image: image, Metadata: s.label(), Network: network})
}

// RunCode runs Python code, which must succeed, in the sandbox's default context,
// and returns the text of its value.
func (s *Session) RunCode(ctx context.Context, ref, code string) (string, error) {
	r, err := s.c.Contexts.RunCode(ctx, ref, api.RunCodeRequest{Code: code})
	if err != nil {
		return "", err
	}
	if r.Error != nil {
		return "", fmt.Errorf("run code in %s: %s: %s", ref, r.Error.Name, r.Error.Value)
	}
	return r.Result, nil
}

// Snapshot makes a snapshot on disk that belongs to the session.
func (s *Session) Snapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	return s.c.Snapshots.Create(ctx, ref, api.SnapshotRequest{Metadata: s.label()})
}

// Destroy destroys sandboxes, several at a time. It continues after a failure, and ignores
// sandboxes that do not exist any more.
func (s *Session) Destroy(ctx context.Context, ids ...string) error {
	errs := make([]error, len(ids))
	err := Each(ctx, len(ids), func(ctx context.Context, i int) error {
		if err := s.c.Sandboxes.Destroy(ctx, ids[i]); err != nil && api.CodeOf(err) != api.CodeNotFound {
			errs[i] = fmt.Errorf("destroy sandbox %s: %w", ids[i], err)
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// Living returns the existing sandboxes of the session.
func (s *Session) Living(ctx context.Context) ([]api.Sandbox, error) {
	return s.c.Sandboxes.List(ctx, api.ListFilter{Metadata: s.label()})
}

// Close destroys all sandboxes and snapshots of the session, also those of calls that were
// interrupted before the client had the ids. It works for a limited time after ctx has ended.
func (s *Session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	// An interrupted restore may have finished meanwhile.
	err := errors.Join(s.closeSandboxes(ctx), s.closeSnapshots(ctx), s.closeSandboxes(ctx))
	if err != nil {
		return fmt.Errorf("clean up %s: %w", s.name, err)
	}
	return nil
}

// closeSandboxes looks again until nothing is left: a sandbox that is being
// forked is destroyed when the fork is over, and only then its children are
// there to be found.
func (s *Session) closeSandboxes(ctx context.Context) error {
	for {
		list, err := s.Living(ctx)
		if err != nil || len(list) == 0 {
			return err
		}
		ids := make([]string, len(list))
		for i := range list {
			ids[i] = list[i].ID
		}
		if err := s.Destroy(ctx, ids...); err != nil {
			return err
		}
	}
}

func (s *Session) closeSnapshots(ctx context.Context) error {
	list, err := s.c.Snapshots.List(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range slices.Backward(list) { // later ones depend on older ones
		if list[i].Metadata[labelKey] == s.name {
			errs = append(errs, s.c.Snapshots.Delete(ctx, list[i].ID, api.SnapshotDeletion{}))
		}
	}
	return errors.Join(errs...)
}

// Workers is the number of simultaneous calls of Each: enough to keep the processors busy, and the
// same for everything that is compared.
func Workers() int { return 2 * runtime.NumCPU() }

// Each calls do for 0 to n-1, Workers at a time, and returns the first error, after which it starts
// no new call. It waits for all calls.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, Workers()) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := 0; i < n && ctx.Err() == nil; i++ { // a select alone might choose the other case
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
