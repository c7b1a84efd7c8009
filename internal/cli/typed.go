package cli

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// maxTyped bounds how many arguments are looked up for an error.
const maxTyped = 8

var idInText = regexp.MustCompile(`\b(?:sbx|snap)_[a-z2-7]+\b`)

// learnTyped finds out which of the ids in err the user has called by a name, for a message
// that says what was typed. An error is shown as it is where the daemon cannot tell.
func (a *app) learnTyped(ctx context.Context, c *client.Client, args []string, err error) {
	if err == nil || a.json || ctx.Err() != nil {
		return
	}
	ids := idInText.FindAllString(err.Error(), -1)
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	for _, name := range args[:min(len(args), maxTyped)] {
		if api.ValidName("name", name) != nil {
			continue
		}
		if sb, err := c.Sandboxes.Get(ctx, name); err == nil && slices.Contains(ids, sb.ID) {
			a.typed = append(a.typed, sb.ID, `"`+name+`"`)
		}
		if snap, err := c.Snapshots.Get(ctx, name); err == nil && slices.Contains(ids, snap.ID) {
			a.typed = append(a.typed, snap.ID, `"`+name+`"`)
		}
	}
}

// asTyped puts the names that were typed in the place of ids.
func (a *app) asTyped(text string) string { return strings.NewReplacer(a.typed...).Replace(text) }
