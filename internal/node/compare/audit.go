package compare

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/service/audit"
)

// noteDiff writes down what a comparison said.
func noteDiff(ctx context.Context, diff *api.Diff) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		d.From, d.Base, d.Changes, d.Digest = []string{diff.From, diff.To}, diff.Base, len(diff.Changes), answerDigest(diff.Changes)
	})
}

// noteMerge writes down what a merge decided.
func noteMerge(ctx context.Context, from []*fsview.View, req *api.MergeRequest, res *api.MergeResult) {
	audit.Of(ctx).Set(func(d *api.AuditDetails) {
		for _, v := range from {
			d.From = append(d.From, v.ID)
		}
		d.Strategy, d.DryRun, d.Changes, d.Conflicts, d.Digest = string(req.Strategy), req.DryRun, len(res.Applied), len(res.Conflicts), answerDigest(res)
	})
}

// answerDigest returns a digest that identifies an answer.
func answerDigest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // text and numbers always can be
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
