package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// read returns what Prometheus gets.
func read(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := New("v1")
	if text := read(t, m); strings.Contains(text, "ramet_sandboxes") || !strings.Contains(text, `ramet_build_info{version="v1"} 1`) {
		t.Errorf("before there is anything:\n%s", text)
	}
	ctx := context.WithValue(t.Context(), t, "x")
	for _, err := range []error{nil, nil, api.NotFound("sandbox", "x"), errors.New("x")} {
		got, end := m.Begin(ctx, "fork")
		if got.Value(t) != "x" {
			t.Error("the context is another one")
		}
		end(err)
	}
	_, end := m.Begin(ctx, "exec")
	m.Metric("pause_seconds", 0.007)
	m.Metric("child_private_bytes", 600<<10)
	m.Metric("idle_cpu_ratio", 0.0003)
	m.Metric("nonsense", 3600)
	m.Watch(func() api.Usage {
		return api.Usage{
			Sandboxes: map[api.State]int{api.StateRunning: 3, "new": 1}, Snapshots: map[api.SnapshotState]int{api.SnapshotReady: 2},
			PoolReady: 8, Pins: 5, PrivateBytes: 1 << 20, SharedBytes: 2 << 20, GatewayRestarts: 1,
			Published: api.PublishedUsage{Ports: 3, Connections: 2, Accepted: 12, Refused: 4},
			Gateway: &api.GatewayUsage{
				Sandboxes: 2, Flows: 9, Decisions: map[api.NetworkVerdict]int64{api.NetworkAllowed: 4, api.NetworkDenied: 3, api.NetworkHeld: 0},
				Questions: 6, Requests: 5, Dropped: 7, ProtocolErrors: 1, BytesIn: 100, BytesOut: 50,
				Waiting: 3, Unknown: 1, HeldBytes: 12, OldestHeld: 90 * time.Second,
				Tenants: []api.TenantTraffic{{Name: "acme", Connections: 4, BytesIn: 8, BytesOut: 9, Questions: 10, RefusedConnections: 2, RefusedQuestions: 1}},
			},
		}
	})
	text := read(t, m)
	for _, line := range []string{
		`ramet_operation_seconds_count{operation="fork"} 2`,
		`ramet_operations_total{code="ok",operation="fork"} 2`,
		`ramet_operations_total{code="not_found",operation="fork"} 1`,
		`ramet_operations_total{code="internal",operation="fork"} 1`,
		`ramet_operations_active{operation="fork"} 0`,
		`ramet_operations_active{operation="exec"} 1`,
		`ramet_pause_seconds_bucket{le="0.006"} 0`,
		`ramet_pause_seconds_bucket{le="0.008"} 1`,
		`ramet_child_ready_seconds_count 0`,
		`ramet_child_private_bytes_bucket{le="524288"} 0`,
		`ramet_child_private_bytes_bucket{le="786432"} 1`,
		`ramet_idle_cpu_ratio_bucket{le="0.0002"} 0`,
		`ramet_idle_cpu_ratio_bucket{le="0.0005"} 1`,
		`ramet_sandboxes{state="running"} 3`,
		`ramet_sandboxes{state="paused"} 0`,
		`ramet_sandboxes{state="new"} 1`,
		`ramet_snapshots{state="ready"} 2`,
		`ramet_pool_ready 8`,
		`ramet_pins 5`,
		`ramet_memory_bytes{kind="private"} 1.048576e+06`,
		`ramet_memory_bytes{kind="shared"} 2.097152e+06`,
		`ramet_gateway_restarts_total 1`,
		`ramet_published_ports 3`,
		`ramet_published_connections 2`,
		`ramet_published_connections_total 12`,
		`ramet_published_refused_total 4`,
		`ramet_gateway_sandboxes 2`,
		`ramet_gateway_flows 9`,
		`ramet_network_decisions_total{verdict="allowed"} 4`,
		`ramet_network_decisions_total{verdict="denied"} 3`,
		`ramet_network_decisions_total{verdict="held"} 0`,
		`ramet_network_questions_total 6`,
		`ramet_network_requests_total 5`,
		`ramet_network_dropped_total 7`,
		`ramet_network_protocol_errors_total 1`,
		`ramet_network_bytes_total{direction="in"} 100`,
		`ramet_network_bytes_total{direction="out"} 50`,
		`ramet_held_requests{state="waiting"} 3`,
		`ramet_held_requests{state="unknown"} 1`,
		`ramet_held_bytes 12`,
		`ramet_held_oldest_seconds 90`,
		`ramet_tenant_network_connections{tenant="acme"} 4`,
		`ramet_tenant_network_bytes_total{direction="in",tenant="acme"} 8`,
		`ramet_tenant_network_bytes_total{direction="out",tenant="acme"} 9`,
		`ramet_tenant_network_questions_total{tenant="acme"} 10`,
		`ramet_tenant_network_refused_total{limit="network_connections",tenant="acme"} 2`,
		`ramet_tenant_network_refused_total{limit="network_dns_per_s",tenant="acme"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(text, "nonsense") || strings.Contains(text, `ramet_operation_seconds_count{operation="exec"}`) {
		t.Error("what is unknown, or has not ended, was counted")
	}
	end(nil)
	if t.Failed() {
		t.Log(text)
	}
}
