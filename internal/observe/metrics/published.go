package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"ramet.dev/ramet/api"
)

var (
	publishedPortsDesc    = gauge("published_ports", "Ports of the host that lead to sandboxes.")
	publishedOpenDesc     = gauge("published_connections", "Open connections to published ports.")
	publishedAcceptedDesc = gauge("published_connections_total", "Connections to published ports that were accepted.")
	publishedRefusedDesc  = gauge("published_refused_total", "Requests to published ports without their token.")
)

// publishedDescs are those of collectPublished.
var publishedDescs = []*prometheus.Desc{publishedPortsDesc, publishedOpenDesc, publishedAcceptedDesc, publishedRefusedDesc}

// collectPublished sends the metrics of published ports.
func collectPublished(u *api.PublishedUsage, ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v))
	}
	send(publishedPortsDesc, prometheus.GaugeValue, int64(u.Ports))
	send(publishedOpenDesc, prometheus.GaugeValue, int64(u.Connections))
	send(publishedAcceptedDesc, prometheus.CounterValue, u.Accepted)
	send(publishedRefusedDesc, prometheus.CounterValue, u.Refused)
}
