package session

import (
	"context"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/values"
)

// SetSecrets sets the secrets that options name. A secret that exists keeps the names that it is bound
// to, which other sandboxes need.
func SetSecrets(ctx context.Context, c *client.Client, all []values.EnvSecret) error {
	if len(all) == 0 {
		return nil
	}
	known, err := c.Secrets.List(ctx)
	if err != nil {
		return err
	}
	bound := map[string]api.SecretBinding{}
	for _, s := range known {
		bound[s.Name] = s.SecretBinding
	}
	for _, s := range all {
		b, exists := bound[s.Name]
		if exists && !strings.EqualFold(b.Header, s.Header) {
			return api.Errorf(api.CodeConflict, "secret %s is for the header %s, not for %s: take another variable, or 'ramet secret rm %s'", s.Name, b.Header, s.Header, s.Name)
		}
		b.Header = s.Header
		if !slices.Contains(b.Names, s.Domain) {
			b.Names = append(slices.Clone(b.Names), s.Domain)
		}
		if _, err := c.Secrets.Set(ctx, s.Name, api.SecretRequest{Value: s.Value, SecretBinding: b}); err != nil {
			return err
		}
		bound[s.Name] = b
	}
	return nil
}
