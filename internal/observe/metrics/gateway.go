package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"ramet.dev/ramet/api"
)

var (
	gatewayRestartsDesc   = gauge("gateway_restarts_total", "Gateways that ended while sandboxes needed them, and were started again.")
	gatewaySandboxesDesc  = gauge("gateway_sandboxes", "Sandboxes that have a network.")
	gatewayFlowsDesc      = gauge("gateway_flows", "Connections of sandboxes that are open.")
	networkDecisionsDesc  = gauge("network_decisions_total", "Decisions about connections, look-ups of names and requests, by verdict; since the start of the gateway, as all that follows.", "verdict")
	networkQuestionsDesc  = gauge("network_questions_total", "Look-ups of names by sandboxes.")
	networkRequestsDesc   = gauge("network_requests_total", "Requests of HTTP that were looked at.")
	networkDroppedDesc    = gauge("network_dropped_total", "Messages that were lost because a sandbox sent too many, or that were malformed.")
	protocolErrorsDesc    = gauge("network_protocol_errors_total", "Sandboxes whose channel was closed because they broke its protocol.")
	heldDesc              = gauge("held_requests", "Requests that are held: waiting for a verdict, or unknown because they may have been sent.", "state")
	heldBytesDesc         = gauge("held_bytes", "Bytes of the bodies of requests that are held.")
	heldOldestDesc        = gauge("held_oldest_seconds", "How long the oldest request that is held has waited; 0 if none waits.")
	networkBytesDesc      = gauge("network_bytes_total", "Bytes of connections that have ended, in to sandboxes and out of them.", "direction")
	tenantConnectionsDesc = gauge("tenant_network_connections", "Connections of sandboxes that are open, by tenant.", "tenant")
	tenantBytesDesc       = gauge("tenant_network_bytes_total", "Bytes of connections, in to sandboxes and out of them, by tenant; since its first sandbox with a network.", "tenant", "direction")
	tenantQuestionsDesc   = gauge("tenant_network_questions_total", "Look-ups of names by sandboxes, by tenant; since its first sandbox with a network.", "tenant")
	tenantRefusedDesc     = gauge("tenant_network_refused_total", "What a quota of the tenant did not allow, by the limit; since its first sandbox with a network.", "tenant", "limit")
)

// gatewayDescs are those of collectGateway.
var gatewayDescs = []*prometheus.Desc{
	gatewayRestartsDesc, gatewaySandboxesDesc, gatewayFlowsDesc, networkDecisionsDesc, networkQuestionsDesc, networkRequestsDesc, networkDroppedDesc, protocolErrorsDesc, networkBytesDesc, heldDesc, heldBytesDesc, heldOldestDesc,
	tenantConnectionsDesc, tenantBytesDesc, tenantQuestionsDesc, tenantRefusedDesc,
}

// collectGateway sends the metrics of the gateway, if one runs, and the number of its restarts.
func collectGateway(u *api.Usage, ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	send(gatewayRestartsDesc, prometheus.CounterValue, u.GatewayRestarts)
	g := u.Gateway
	if g == nil {
		return
	}
	send(gatewaySandboxesDesc, prometheus.GaugeValue, int64(g.Sandboxes))
	send(gatewayFlowsDesc, prometheus.GaugeValue, int64(g.Flows))
	for verdict, count := range g.Decisions {
		send(networkDecisionsDesc, prometheus.CounterValue, count, string(verdict))
	}
	send(networkQuestionsDesc, prometheus.CounterValue, g.Questions)
	send(networkRequestsDesc, prometheus.CounterValue, g.Requests)
	send(networkDroppedDesc, prometheus.CounterValue, g.Dropped)
	send(protocolErrorsDesc, prometheus.CounterValue, g.ProtocolErrors)
	send(networkBytesDesc, prometheus.CounterValue, g.BytesIn, "in")
	send(networkBytesDesc, prometheus.CounterValue, g.BytesOut, "out")
	send(heldDesc, prometheus.GaugeValue, int64(g.Waiting), string(api.HeldWaiting))
	send(heldDesc, prometheus.GaugeValue, int64(g.Unknown), string(api.HeldUnknown))
	send(heldBytesDesc, prometheus.GaugeValue, g.HeldBytes)
	send(heldOldestDesc, prometheus.GaugeValue, int64(g.OldestHeld.Seconds()))
	for _, t := range g.Tenants {
		send(tenantConnectionsDesc, prometheus.GaugeValue, int64(t.Connections), t.Name)
		send(tenantBytesDesc, prometheus.CounterValue, t.BytesIn, t.Name, "in")
		send(tenantBytesDesc, prometheus.CounterValue, t.BytesOut, t.Name, "out")
		send(tenantQuestionsDesc, prometheus.CounterValue, t.Questions, t.Name)
		send(tenantRefusedDesc, prometheus.CounterValue, t.RefusedConnections, t.Name, "network_connections")
		send(tenantRefusedDesc, prometheus.CounterValue, t.RefusedQuestions, t.Name, "network_dns_per_s")
	}
}
