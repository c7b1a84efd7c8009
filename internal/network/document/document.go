package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
	"ramet.dev/ramet/api"
)

// Bounds of a text. A document with as many rules as there may be has less.
const (
	MaxSize  = 512 << 10
	maxDepth = 16
	maxNodes = 100_000
)

// Parse reads one document. Unknown and repeated members are errors, as are references of YAML, with
// which a short text could stand for a long one. Errors have api.CodeInvalid and name what they are
// about.
func Parse(text []byte) (*api.NetworkPolicy, error) {
	if len(text) > MaxSize {
		return nil, api.Invalid("network", "the document has more than %d bytes", MaxSize)
	}
	value, err := read(&converter{field: "network"}, text)
	if err != nil {
		return nil, err
	}
	if value == nil {
		return &api.NetworkPolicy{}, nil
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode network document: %w", err)
	}
	return api.DecodeNetworkPolicy(asJSON)
}

// MaxPlan bounds the text of the plan of an exploration.
const MaxPlan = 16 << 20

// ParsePlan reads the plan of an exploration as a value of JSON, nil if it has nothing but comments.
// It refuses what Parse refuses, but for the meaning of members.
func ParsePlan(text []byte) (any, error) {
	if len(text) > MaxPlan {
		return nil, api.Invalid("plan", "it has more than %d bytes", MaxPlan)
	}
	return read(&converter{field: "plan", fractions: true}, text)
}

// read returns a document as a value of JSON.
func read(c *converter, text []byte) (value any, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil // nothing but comments
	case err != nil && json.Valid(text): // JSON may have characters that YAML wants escaped
		return json.RawMessage(text), nil
	case err != nil:
		return nil, c.syntaxError(err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, api.Invalid(c.field, "there is a second document after ---")
	}
	return c.value(&root, 0)
}

// syntaxError says what is wrong, and how it is most often put right: names that begin with * have
// to be quoted in YAML.
func (c *converter) syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "alias") || strings.Contains(text, "anchor") || strings.Contains(text, "expected alphabetic") {
		text += ` (a name that begins with * is quoted: "*.example.org")`
	}
	return api.Invalid(c.field, "the document is no YAML: %s", text)
}

// converter makes values of JSON of the nodes of one document.
type converter struct {
	field     string // that errors name
	fractions bool   // numbers may have fractions
	nodes     int
}

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		return nil, c.fault(n, "the document is nested more than %d deep, or has more than %d values", maxDepth, maxNodes)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return c.value(n.Content[0], depth)
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.ScalarNode:
		return c.scalar(n)
	}
	return nil, c.fault(n, `references (*name) are not followed; a name that begins with * is quoted: "*.example.org"`)
}

func (c *converter) mapping(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return nil, c.fault(key, "keys are plain words, and << is none")
		}
		if _, twice := out[key.Value]; twice {
			return nil, c.fault(key, "%q is given twice", key.Value)
		}
		v, err := c.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		out[key.Value] = v
	}
	return out, nil
}

// scalar returns the value of a word, by the tag that YAML 1.2 gives it.
func (c *converter) scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!str", "!!timestamp": // a time is a word here
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, c.fault(n, "%q is not true or false", n.Value)
		}
		return b, nil
	case "!!int":
		var i int64
		if err := n.Decode(&i); err != nil {
			return nil, c.fault(n, "%.100q is no number that is used here", n.Value)
		}
		return i, nil
	case "!!float":
		var f float64
		if err := n.Decode(&f); err == nil && c.fractions && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	return nil, c.fault(n, "%.100q has the type %.50s, which has no use here", n.Value, n.Tag)
}

func (c *converter) fault(n *yaml.Node, format string, args ...any) error {
	return api.Invalid(c.field, "line %d: %s", n.Line, fmt.Sprintf(format, args...))
}

// Format writes a document in YAML, without the members that say nothing. Parse reads it.
func Format(p *api.NetworkPolicy) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode network document: %w", err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return append(text, '\n'), nil // it has characters that YAML wants escaped
	}
	top := root.Content[0]
	for i := 0; i+1 < len(top.Content); {
		if v := top.Content[i+1]; v.Kind != yaml.ScalarNode && len(v.Content) == 0 {
			top.Content = append(top.Content[:i], top.Content[i+2:]...)
			continue
		}
		i += 2
	}
	spread(&root)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("encode network document: %w", err)
	}
	return out.Bytes(), nil
}

// spread has lists and objects written on lines of their own, and words without quotes where they
// need none.
func spread(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		spread(c)
	}
}
