package workload

import (
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

// PythonImage is the name of the image that is built where it is missing.
const PythonImage = api.PythonImage

// Image returns the image with a name. It builds PythonImage if that does not exist, and calls
// progress meanwhile.
func Image(ctx context.Context, c *client.Client, name string, progress func(api.Progress)) (*api.Image, error) {
	img, err := c.Images.Get(ctx, name)
	if err == nil || name != PythonImage || api.CodeOf(err) != api.CodeNotFound {
		return img, err
	}
	img, err = c.Images.Create(ctx, api.ImageRequest{Name: name, Build: api.PythonBuild(), IfMissing: true}, progress)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", name, err)
	}
	return img, nil
}
