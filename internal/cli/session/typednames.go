package session

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// maxTyped bounds the number of arguments that are looked up for an error.
const maxTyped = 8

var idInText = regexp.MustCompile(`\b(?:sbx|snap)_[a-z2-7]+\b`)

// resolveTyped finds the ids in err that the user typed as names, so that the message can have the
// names. The message keeps the ids if the daemon does not answer.
func (s *Session) resolveTyped(ctx context.Context, c *client.Client, args []string, err error) {
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
			s.typedNames = append(s.typedNames, sb.ID, `"`+name+`"`)
		}
		if snap, err := c.Snapshots.Get(ctx, name); err == nil && slices.Contains(ids, snap.ID) {
			s.typedNames = append(s.typedNames, snap.ID, `"`+name+`"`)
		}
	}
}

// AsTyped replaces ids in text by the names that the user typed.
func (s *Session) AsTyped(text string) string {
	return strings.NewReplacer(s.typedNames...).Replace(text)
}
