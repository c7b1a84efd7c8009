package dataplane

import (
	"encoding/json"
	"io"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// execFrames runs a command and answers in frames, see httpwire.FrameType.
func (h *commands) execFrames(w http.ResponseWriter, r *http.Request, ref string, req api.ExecRequest, stdin io.Reader) {
	if req.Key != "" { // the command goes on, and the next daemon can be asked for it
		ctx, release := h.UntilDraining(r.Context())
		defer release()
		r = r.WithContext(ctx)
	}
	f, ctx := stream.NewFrames(w, r)
	defer f.Close()
	res, err := h.svc.Exec(ctx, ref, req, api.ExecIO{
		Stdin: stdin, Stdout: f.Stream(httpwire.StreamStdout), Stderr: f.Stream(httpwire.StreamStderr),
	})
	final := httpwire.Final{Exit: res}
	if err != nil {
		if !f.HasBegun() {
			h.WriteProblem(w, r, err)
			return
		}
		final = httpwire.Final{Error: h.LateProblem(r.Context(), err)}
	}
	if b, err := json.Marshal(final); err == nil {
		_ = f.Send(httpwire.StreamFinal, b) // fails only if the client is gone
	}
}
