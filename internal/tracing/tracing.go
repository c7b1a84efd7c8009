package tracing

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

	"ramet.dev/ramet/internal/sandbox"
)

const scope = "ramet.dev/ramet"

// propagator reads and writes traceparent, see the W3C's Trace Context.
var propagator = propagation.TraceContext{}

// Tracing makes traces and sends them off. A nil one does nothing.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open reads the environment, in which the usual variables OTEL_* are, and returns
// nil unless a collector is named there. What goes wrong with sending is reported.
func Open(service, version string, getenv func(string) string, report func(error)) (*Tracing, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	exporter, err := newExporter(getenv)
	if exporter == nil || err != nil {
		return nil, err
	}
	// What the environment says of the resource wins.
	of, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this program for traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report)) // there is no other way to hear of it
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
	return &Tracing{provider: provider, tracer: provider.Tracer(scope)}, nil
}

// Close sends what has not been sent.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Root begins a span that belongs to traceparent, if that is one, and else to a new
// trace. Its end is told what failed, "" for nothing.
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

// Start begins a span below that of ctx. Without one there it does nothing.
func Start(ctx context.Context, name string) (context.Context, func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, func(err error) {
		if err != nil { // its text may have words of a guest
			span.SetStatus(codes.Error, string(sandbox.CodeOf(err)))
		}
		span.End()
	}
}

// Observer has a manager's operations be spans.
type Observer struct{}

// Begin begins the span of an operation.
func (Observer) Begin(ctx context.Context, operation string) (context.Context, func(error)) {
	return Start(ctx, "manager "+operation)
}

// Figure does nothing: a span has its own times.
func (Observer) Figure(string, time.Duration) {}

const (
	// maxPhases and maxPhase bound what a sentry can put into a trace.
	maxPhases = 32
	maxPhase  = 40
)

// Phases are attributes of the operation's span.
func (Observer) Phases(ctx context.Context, call string, ms map[string]float64) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	for i, name := range slices.Sorted(maps.Keys(ms)) {
		if i == maxPhases {
			return
		}
		span.SetAttributes(attribute.Float64("sentry."+call+"."+strings.ToValidUTF8(name[:min(len(name), maxPhase)], "?")+"_ms", ms[name]))
	}
}

var errProtocol = errors.New("only http/json is spoken, which collectors take at the same address as http/protobuf")
