package session

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
func (s *Session) learnTyped(ctx context.Context, c *client.Client, args []string, err error) {
	if err == nil || s.JSON || ctx.Err() != nil {
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
			s.typed = append(s.typed, sb.ID, `"`+name+`"`)
		}
		if snap, err := c.Snapshots.Get(ctx, name); err == nil && slices.Contains(ids, snap.ID) {
			s.typed = append(s.typed, snap.ID, `"`+name+`"`)
		}
	}
}

// AsTyped puts the names that were typed in the place of ids.
func (s *Session) AsTyped(text string) string { return strings.NewReplacer(s.typed...).Replace(text) }
