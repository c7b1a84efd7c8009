package cli_test

import (
	"cmp"
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fakePublished publishes ports of the sandbox "kid" only.
func fakePublished() apitest.PublishedFuncs {
	return apitest.PublishedFuncs{
		PublishedPortsFunc: func(ctx context.Context, ref string) ([]api.PublishedPort, error) {
			if _, err := find(ctx, ref); err != nil || ref != "kid" {
				return nil, err
			}
			return []api.PublishedPort{
				{Port: 8000, Address: "127.0.0.1", HostPort: 8080, Protected: true, Connections: 2, Accepted: 7, Refused: 3},
				{Port: 9000, Address: "::1", HostPort: 9000, Error: "port 9000 of ::1 is in use"},
				{Port: 8000, Address: "0.0.0.0", HostPort: 80},
			}, nil
		},
		PublishPortFunc: func(ctx context.Context, ref string, req api.PublishRequest) (*api.PublishedPort, error) {
			if _, err := find(ctx, ref); err != nil {
				return nil, err
			}
			if req.HostPort == 81 {
				return nil, api.Errorf(api.CodeConflict, "port 81 of 127.0.0.1 is in use")
			}
			return &api.PublishedPort{Port: req.Port, Address: cmp.Or(req.Address, "127.0.0.1"), HostPort: cmp.Or(req.HostPort, 40000), Protected: req.Token != ""}, nil
		},
		UnpublishPortFunc: func(_ context.Context, ref string, hostPort int) error {
			if ref != "base" || hostPort != 8080 {
				return api.Errorf(api.CodeNotFound, "sandbox %s publishes nothing on port %d of the host", ref, hostPort)
			}
			return nil
		},
	}
}
