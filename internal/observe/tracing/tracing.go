package tracing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"ramet.dev/ramet/api"
)

const (
	scope       = "ramet.dev/ramet"
	serviceName = "service.name"
	// sentryService is the service that spans of sentries belong to.
	sentryService = "ramet-sentry"
)

// propagator reads and writes traceparent, see the W3C's Trace Context.
var propagator = propagation.TraceContext{}

// Tracing makes traces and sends them. A nil Tracing does nothing.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open reads the environment, in which the usual variables OTEL_* are, and returns
// nil unless the environment names a collector. Failures of sending are reported.
func Open(service, version string, getenv func(string) string, report func(error)) (*Tracing, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	exporter, err := newExporter(getenv)
	if exporter == nil || err != nil {
		return nil, err
	}
	// Attributes from the environment win.
	of, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String(serviceName, service), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this program for traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report)) // the library has no other way to report failures
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	return &Tracing{provider: provider, tracer: provider.Tracer(scope)}, nil
}

// Close sends the spans that are not sent yet.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Root begins a span below traceparent, if it is well-formed, else of a new trace. The function
// that ends the span takes the failure, "" for none.
func (t *Tracing) Root(ctx context.Context, name, traceparent string) (context.Context, func(failure string)) {
	if t == nil {
		return ctx, func(string) {}
	}
	ctx = propagator.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, func(failure string) {
		if failure != "" {
			span.SetStatus(codes.Error, failure)
		}
		span.End()
	}
}

// Start begins a span below that of ctx. Without a span in ctx it does nothing.
func Start(ctx context.Context, name string) (context.Context, func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, func(err error) {
		if err != nil { // its text may have words of a guest
			span.SetStatus(codes.Error, string(api.CodeOf(err)))
		}
		span.End()
	}
}

// Observer makes spans of the node's operations.
type Observer struct{}

// Begin begins the span of an operation.
func (Observer) Begin(ctx context.Context, operation string) (context.Context, func(error)) {
	return Start(ctx, "node "+operation)
}

// Metric does nothing: a span has its own times.
func (Observer) Metric(string, float64) {}

const (
	// maxStages and maxStage bound what a sentry can put into a trace.
	maxStages = 32
	maxStage  = 40
)

// Stage is a step of a call, as the sentry reports it.
type Stage struct {
	Name string
	MS   float64
}

// Sentry makes spans of the stages of a call that a sentry has just answered, below the span
// of ctx. The spans follow each other and lie within the call: a sentry's times are not
// trusted.
func Sentry(ctx context.Context, call string, stages []Stage) {
	parent, ok := trace.SpanFromContext(ctx).(sdk.ReadWriteSpan)
	if !ok || !parent.IsRecording() {
		return
	}
	stages = stages[:min(len(stages), maxStages)]
	starts := make([]time.Time, len(stages)+1)
	began := parent.StartTime()
	at := began.Add(time.Since(began)) // computed as the library computes the end of a span
	starts[len(stages)] = at
	for i, st := range slices.Backward(stages) {
		// A time that is no number counts as zero, a longer one than the call as all of it.
		left := at.Sub(began)
		if ms := float64(left) / float64(time.Millisecond); st.MS > 0 && st.MS < ms {
			left = time.Duration(st.MS * float64(time.Millisecond))
		} else if !(st.MS > 0) {
			left = 0
		}
		at = at.Add(-left)
		starts[i] = at
	}
	tracer := parent.TracerProvider().Tracer(scope)
	for i, st := range stages {
		name := strings.ToValidUTF8(st.Name[:min(len(st.Name), maxStage)], "?")
		_, span := tracer.Start(ctx, call+" "+name, trace.WithTimestamp(starts[i]), trace.WithAttributes(ofSentry))
		span.End(trace.WithTimestamp(starts[i+1]))
	}
}

// ofSentry marks spans of sentries, which the daemon sends for them.
var ofSentry = attribute.String("ramet.process", "sentry")

var errProtocol = errors.New("only http/json is spoken, which collectors take at the same address as http/protobuf")
