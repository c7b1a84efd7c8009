package session

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// CreateSandbox creates a sandbox. If its image has to be pulled or built first, the progress of
// that is shown, unless quiet is set. ctx is for the image, and call for the sandbox, whose id
// would be lost if the call were cancelled.
func (s *Session) CreateSandbox(ctx, call context.Context, c *client.Client, req api.CreateRequest, quiet bool) (*api.Sandbox, error) {
	policy := req.PullPolicy()
	if err := policy.Valid("pull"); err != nil {
		return nil, err
	}
	got := req.ImageRequest()
	if policy != api.PullAlways {
		req.Pull = api.PullNever
		sb, err := c.Sandboxes.Create(call, req)
		if policy == api.PullNever || api.CodeOf(err) != api.CodeNotFound {
			return sb, err
		}
	}
	p := s.ProgressUnless(ctx, quiet)
	img, err := c.Images.Create(ctx, got, p.Update)
	p.End(err == nil)
	if err != nil {
		return nil, err
	}
	req.Image, req.Pull = img.ID, api.PullNever
	return c.Sandboxes.Create(call, req)
}
