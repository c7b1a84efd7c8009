package cli_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"ramet.dev/ramet/api"
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
