package control

import (
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"
	"ramet.dev/ramet/internal/service"
)

// Register adds the routes of sandboxes as wholes, and of the things that are managed beside
// them.
func Register(r *route.Router, s *stream.Streams, svc service.Service) {
	(&images{s, svc}).routeImages(r)
	(&sandboxes{svc}).routeSandboxes(r)
	(&forks{svc}).routeForks(r)
	(&snapshots{svc}).routeSnapshots(r)
	(&packs{s, svc}).routePacks(r)
	(&timeline{svc}).routeTimeline(r)
	(&explorations{s, svc}).routeExplorations(r)
	(&networks{s, svc}).routeNetworks(r)
	(&secrets{svc}).routeSecrets(r)
	(&held{svc}).routeHeld(r)
	(&volumes{svc}).routeVolumes(r)
	(&exports{s, svc}).routeExports(r)
	(&eventLog{s, svc}).routeEvents(r)
	(&tokens{svc}).routeTokens(r)
	(&auditLog{svc}).routeAudit(r)
	(&tenants{svc}).routeTenants(r)
}
