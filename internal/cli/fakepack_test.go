package cli_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fakePack writes what was asked for; that of broken breaks off in the middle.
func fakePack(_ context.Context, ref string, req api.PackRequest, w io.Writer) error {
	if ref == "none" {
		return api.NotFound("snapshot", ref)
	}
	if ref == "broken" {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
		return api.Errorf(api.CodeNoSpace, "the disk is full")
	}
	_, err := fmt.Fprintf(w, "%s image=%t", ref, !req.WithoutImage)
	if err == nil && req.Sign {
		_, err = w.Write([]byte(" signed"))
	}
	if err == nil && !req.WithoutImage {
		_, err = w.Write([]byte("\n"))
	}
	return err
}

func fakePackContents(_ context.Context, ref string) (*api.PackContents, error) {
	return &api.PackContents{
		Snapshot: snapID, Image: imgID, Engine: "gvisor 1", Architecture: "amd64",
		Parts: []api.PackPart{{Kind: "memory", Snapshot: snapID, Digest: "sha256:" + strings.Repeat("a", 64), SizeBytes: 4096}},
		Env:   []string{"TOKEN"}, LeftOut: []string{"volume data at /data"},
	}, nil
}

func fakePush(_ context.Context, ref string, req api.PushRequest, progress func(api.Progress)) (*api.PushResult, error) {
	if ref == "none" {
		return nil, api.NotFound("snapshot", ref)
	}
	progress(api.Progress{Phase: "push", Done: 1024, Total: 2048})
	return &api.PushResult{Snapshot: snapID, Ref: req.Ref, Digest: "sha256:aa", SizeBytes: 2048, SentBytes: 1024}, nil
}

// withPacks adds the functions of snapshots that leave and arrive.
func withPacks(snap *api.Snapshot, f apitest.SnapshotFuncs) apitest.SnapshotFuncs {
	f.PackFunc, f.PackContentsFunc, f.PushFunc = fakePack, fakePackContents, fakePush
	f.UnpackFunc = func(_ context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error) {
		if b, err := io.ReadAll(r); err != nil || len(b) == 0 {
			return nil, cmp.Or(err, error(api.Errorf(api.CodeCorrupt, "this is no archive of a snapshot")))
		}
		if len(req.Trust) > 0 && !slices.Contains(req.Trust, fakeKey) {
			return nil, api.Errorf(api.CodeForbidden, "no trusted key has signed the snapshot")
		}
		out := *snap
		out.Name = cmp.Or(req.Name, snap.Name)
		return &out, nil
	}
	f.SigningKeyFunc = func(context.Context) (*api.SigningKey, error) { return &api.SigningKey{Key: fakeKey}, nil }
	f.PullFunc = func(_ context.Context, req api.PullRequest, progress func(api.Progress)) (*api.Snapshot, error) {
		if req.Ref == "debian:12" {
			return nil, api.Errorf(api.CodeUnsupported, "%q is an image, not a snapshot: use 'ramet image pull'", req.Ref)
		}
		progress(api.Progress{Phase: "fetch"})
		out := *snap
		out.Name = cmp.Or(req.Name, snap.Name)
		return &out, nil
	}
	return f
}

// fakeKey is the key that signs.
const fakeKey = "ramet-ed25519:abc"
