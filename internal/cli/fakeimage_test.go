package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"ramet.dev/ramet/api"
)

// fakeExport writes what was asked for; kid's export breaks off in the middle.
func fakeExport(ctx context.Context, ref string, req api.ExportRequest, w io.Writer) error {
	if _, err := find(ctx, ref); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, ref, req.Format, req.Gzip); err != nil || ref != "kid" {
		return err
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	return api.Errorf(api.CodeCorrupt, "page 7 is none")
}

func fakeImage(img *api.Image) func(context.Context, api.ImageRequest, func(api.Progress)) (*api.Image, error) {
	return func(_ context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
		progress(api.Progress{Phase: "fetch", Done: 1, Total: 3, Detail: "first"})
		progress(api.Progress{Phase: "fetch", Done: 2, Total: 3, Detail: "first"})
		progress(api.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "second"})
		progress(api.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "first"})
		progress(api.Progress{Phase: "fetch", Done: 3, Total: 3, Detail: "second"})
		progress(api.Progress{Phase: "write", Done: 0, Total: 0})
		if req.Name == "bad" || req.Ref == "bad" {
			return nil, api.Errorf(api.CodeHostile, "path leaves the root")
		}
		out := *img
		source, err := json.Marshal(req)
		out.Names, out.Source = []string{req.Name}, string(source)
		return &out, err
	}
}
