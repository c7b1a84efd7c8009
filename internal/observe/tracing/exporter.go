package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"ramet.dev/ramet/api"
)

// exporter sends spans as OTLP over HTTP in JSON. The library's own exporter links gRPC, which
// would slow down the start of every command.
type exporter struct {
	url    string
	header http.Header
	http   *http.Client
}

const (
	defaultTimeout = 10 * time.Second
	// maxAnswer is how many bytes of a refusal are reported.
	maxAnswer = 200
)

// newExporter returns nil if no collector is named.
func newExporter(getenv func(string) string) (*exporter, error) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	option := func(name string) (string, string) {
		for _, full := range []string{prefix + "TRACES_" + name, prefix + name} {
			if v := getenv(full); v != "" {
				return full, v
			}
		}
		return prefix + name, ""
	}
	name, endpoint := option("ENDPOINT")
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, api.Invalid(name, "%q is not a URL of http or https", endpoint)
	}
	if name == prefix+"ENDPOINT" {
		u = u.JoinPath("v1/traces")
	}
	if name, protocol := option("PROTOCOL"); protocol != "" && !strings.HasPrefix(protocol, "http/") {
		return nil, api.Invalid(name, "%q: %w", protocol, errProtocol)
	}
	e := &exporter{url: u.String(), header: http.Header{"Content-Type": {"application/json"}}, http: &http.Client{Timeout: defaultTimeout}}
	if name, text := option("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return nil, api.Invalid(name, "%q is not a number of milliseconds", text)
		}
		e.http.Timeout = time.Duration(ms) * time.Millisecond
	}
	name, headers := option("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(v))
		if !ok || err != nil {
			return nil, api.Invalid(name, "it is not KEY=VALUE,KEY=VALUE") // values may be secret
		}
		e.header.Set(strings.TrimSpace(k), value)
	}
	return e, nil
}

// ExportSpans implements the SDK's SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	doc, err := json.Marshal(requestOf(spans))
	if err != nil {
		return fmt.Errorf("encode traces: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(doc))
	if err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	req.Header = e.header.Clone()
	resp, err := e.http.Do(req)
	if err != nil {
		return fmt.Errorf("send traces: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("send traces: %s: %q", resp.Status, answer)
	}
	return err
}

// Shutdown implements the SDK's SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.http.CloseIdleConnections()
	return nil
}

// The request of OTLP, without unused fields. 64-bit numbers are strings in its JSON.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   attributed   `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	attributed struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scopeName  `json:"scope"`
		Spans []spanData `json:"spans"`
	}
	scopeName struct {
		Name string `json:"name"`
	}
	spanData struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		TraceState string     `json:"traceState,omitempty"`
		Name       string     `json:"name"`
		Kind       int        `json:"kind"`
		Start      int64      `json:"startTimeUnixNano,string"`
		End        int64      `json:"endTimeUnixNano,string"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Status     status     `json:"status"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

// requestOf describes spans of one provider, which have one resource; those of sentries
// are of another service.
func requestOf(spans []sdk.ReadOnlySpan) exportRequest {
	var own, sentries []spanData
	for _, s := range spans {
		if slices.Contains(s.Attributes(), ofSentry) {
			sentries = append(sentries, dataOf(s))
		} else {
			own = append(own, dataOf(s))
		}
	}
	var req exportRequest
	add := func(of []attribute.KeyValue, list []spanData) {
		if len(list) > 0 {
			req.ResourceSpans = append(req.ResourceSpans, resourceSpans{
				Resource: attributed{keyValues(of)}, ScopeSpans: []scopeSpans{{Scope: scopeName{scope}, Spans: list}},
			})
		}
	}
	of := spans[0].Resource().Attributes()
	add(of, own)
	of = slices.DeleteFunc(of, func(a attribute.KeyValue) bool { return a.Key == serviceName })
	add(append(of, attribute.String(serviceName, sentryService)), sentries)
	return req
}

func dataOf(s sdk.ReadOnlySpan) spanData {
	own := s.SpanContext()
	d := spanData{
		TraceID: own.TraceID().String(), SpanID: own.SpanID().String(), TraceState: own.TraceState().String(),
		Name: s.Name(), Kind: int(s.SpanKind()), Start: s.StartTime().UnixNano(), End: s.EndTime().UnixNano(),
		Attributes: keyValues(s.Attributes()), Status: statusOf(s.Status()),
	}
	if parent := s.Parent(); parent.HasSpanID() {
		d.ParentID = parent.SpanID().String()
	}
	return d
}

// statusOf translates a status: OTLP counts error and ok the other way round.
func statusOf(s sdk.Status) status {
	return status{Message: s.Description, Code: map[string]int{"Ok": 1, "Error": 2}[s.Code.String()]}
}

func keyValues(attributes []attribute.KeyValue) []keyValue {
	list := make([]keyValue, 0, len(attributes))
	for _, a := range attributes {
		value := map[string]any{"stringValue": a.Value.String()}
		switch a.Value.Type() {
		case attribute.INT64:
			value = map[string]any{"intValue": strconv.FormatInt(a.Value.AsInt64(), 10)}
		case attribute.FLOAT64:
			if v := a.Value.AsFloat64(); !math.IsNaN(v) && !math.IsInf(v, 0) {
				value = map[string]any{"doubleValue": v}
			}
		}
		list = append(list, keyValue{string(a.Key), value})
	}
	return list
}
