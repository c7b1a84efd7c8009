package metrics

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ramet.dev/ramet/api"
)

// seconds are buckets from the run of a cell, a millisecond, to the export of an image.
var seconds = []float64{.0005, .001, .002, .003, .004, .006, .008, .01, .015, .02, .03, .04, .06, .08, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// bytes are buckets from the memory of an idle child to that of a database.
var bytes = prometheus.ExponentialBuckets(512<<10, 1.5, 26)

// ratios are buckets of shares of one processor.
var ratios = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 4}

// metric is a histogram besides the durations of operations.
type metric struct {
	help    string
	buckets []float64
}

var histograms = map[string]metric{
	"pause_seconds":            {"How long a sandbox stood still to be forked or snapshotted.", seconds},
	"merge_pause_seconds":      {"How long a sandbox stood still for the names that a merge changed in it.", seconds},
	"child_ready_seconds":      {"Time from the call to when one child of a fork or restore was ready.", seconds},
	"all_ready_seconds":        {"Time from the call to when all children of a fork or restore were ready and recorded.", seconds},
	"child_first_exec_seconds": {"How long the first command in a child of a fork or restore took.", seconds},
	"child_cpu_seconds":        {"Processor time of the processes of a child of a fork or restore, from their start until it was 5 to 8 seconds old; up to 16 children every 3 seconds.", seconds},
	"child_private_bytes":      {"Memory that only one child of a fork or restore had when it was 5 to 8 seconds old, what its processes need besides included; of the same children.", bytes},
	"idle_cpu_ratio":           {"Share of one processor that a running sandbox took in some seconds, after nobody had used it for 5; of each, every 3 seconds.", ratios},
}

// Metrics counts and measures. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	took     *prometheus.HistogramVec
	ended    *prometheus.CounterVec
	active   *prometheus.GaugeVec
	metrics  map[string]prometheus.Histogram

	mu    sync.Mutex
	usage func() api.Usage // nil until Watch
}

// New returns metrics of a daemon of some version.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		took: prometheus.NewHistogramVec(histogram("operation_seconds", seconds,
			"How long operations took that succeeded, from the call to its return; exec, run_code and export with what the sandbox does meanwhile."), []string{"operation"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "ramet", Name: "operations_total", Help: "Operations that ended, by the code of their error, ok for none."}, []string{"operation", "code"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "ramet", Name: "operations_active", Help: "Operations under way."}, []string{"operation"}),
		metrics: map[string]prometheus.Histogram{},
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "ramet", Name: "build_info", Help: "1, with the version of the daemon.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.took, m.ended, m.active, build, (*usage)(m),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, f := range histograms {
		h := prometheus.NewHistogram(histogram(name, f.buckets, f.help))
		m.metrics[name] = h
		m.registry.MustRegister(h)
	}
	return m
}

// histogram has both kinds of buckets: the given ones, and native ones, a tenth apart, for
// scrapers that ask for them.
func histogram(name string, buckets []float64, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: "ramet", Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100}
}

// Begin counts an operation, which ends when the function is called.
func (m *Metrics) Begin(ctx context.Context, operation string) (context.Context, func(error)) {
	began, active := time.Now(), m.active.WithLabelValues(operation)
	active.Inc()
	return ctx, func(err error) {
		active.Dec()
		code := "ok"
		if err != nil {
			code = string(api.CodeOf(err))
		} else {
			m.took.WithLabelValues(operation).Observe(time.Since(began).Seconds())
		}
		m.ended.WithLabelValues(operation, code).Inc()
	}
}

// Metric records a value, in the unit that ends its name. Unknown names are ignored.
func (m *Metrics) Metric(name string, value float64) {
	if h := m.metrics[name]; h != nil {
		h.Observe(value)
	}
}

// Watch sets the function that returns the usage whenever the metrics are read.
func (m *Metrics) Watch(of func() api.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = of
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// usage collects the gauges of a daemon's resources at the moment of reading.
type usage Metrics

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ramet_"+name, help, labels, nil)
}

var (
	sandboxesDesc = gauge("sandboxes", "Sandboxes by state.", "state")
	snapshotsDesc = gauge("snapshots", "Snapshots by state.", "state")
	poolDesc      = gauge("pool_ready", "Blank processes that wait to become sandboxes.")
	pinsDesc      = gauge("pins", "Moments of sandboxes that are kept in memory for children and snapshots.")
	memoryDesc    = gauge("memory_bytes", "Memory of sandboxes: private, which one alone maps, and shared, which others may map too; without what their processes need besides.", "kind")
)

// Describe implements prometheus.Collector.
func (u *usage) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sandboxesDesc, snapshotsDesc, poolDesc, pinsDesc, memoryDesc} {
		ch <- d
	}
	for _, d := range slices.Concat(gatewayDescs, publishedDescs) {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (u *usage) Collect(ch chan<- prometheus.Metric) {
	u.mu.Lock()
	of := u.usage
	u.mu.Unlock()
	if of == nil {
		return
	}
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := of()
	for _, s := range states(api.States(), now.Sandboxes) {
		send(sandboxesDesc, float64(now.Sandboxes[s]), string(s))
	}
	for _, s := range states(api.SnapshotStates(), now.Snapshots) {
		send(snapshotsDesc, float64(now.Snapshots[s]), string(s))
	}
	send(poolDesc, float64(now.PoolReady))
	send(pinsDesc, float64(now.Pins))
	send(memoryDesc, float64(now.PrivateBytes), "private")
	send(memoryDesc, float64(now.SharedBytes), "shared")
	collectGateway(&now, ch)
	collectPublished(&now.Published, ch)
}

// states returns all states, so that a graph falls to zero and does not end, and further states
// in there.
func states[S ~string](all []S, there map[S]int) []S {
	for s := range there {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
