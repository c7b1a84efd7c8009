package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"ramet.dev/ramet/internal/sandbox"
)

// fakeExport writes what was asked for; kid's export breaks off in the middle.
func fakeExport(ctx context.Context, ref string, req sandbox.ExportRequest, w io.Writer) error {
	if _, err := find(ctx, ref); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, ref, req.Format, req.Gzip); err != nil || ref != "kid" {
		return err
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.CodeCorrupt, "page 7 is none")
}

func fakeImage(img *sandbox.Image) func(context.Context, sandbox.ImageRequest, func(sandbox.Progress)) (*sandbox.Image, error) {
	return func(_ context.Context, req sandbox.ImageRequest, progress func(sandbox.Progress)) (*sandbox.Image, error) {
		progress(sandbox.Progress{Phase: "fetch", Done: 1, Total: 3, Detail: "first"})
		progress(sandbox.Progress{Phase: "fetch", Done: 2, Total: 3, Detail: "first"})
		progress(sandbox.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "second"})
		progress(sandbox.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "first"})
		progress(sandbox.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "second"})
		progress(sandbox.Progress{Phase: "write", Done: 0, Total: 0})
		if req.Name == "bad" {
			return nil, sandbox.Errorf(sandbox.CodeHostile, "path leaves the root")
		}
		out := *img
		source, err := json.Marshal(req)
		out.Names, out.Source = []string{req.Name}, string(source)
		return &out, err
	}
}
