package dataplane

import (
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"
	"ramet.dev/ramet/internal/service"
)

// Register adds the routes of operations inside of sandboxes.
func Register(r *route.Router, s *stream.Streams, svc service.Service, browsers *Browsers) {
	(&commands{s, svc}).routeExec(r)
	(&files{s, svc}).routeFiles(r)
	(&processes{s, svc}).routeProcesses(r)
	(&ports{s.Reporter, svc, browsers}).routePorts(r)
	(&contexts{s, svc}).routeContexts(r)
}
