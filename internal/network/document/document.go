package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF):
		return &api.NetworkPolicy{}, nil // nothing but comments
	case err != nil && json.Valid(text): // JSON may have characters that YAML wants escaped
		return api.DecodeNetworkPolicy(text)
	case err != nil:
		return nil, syntaxError(err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, api.Invalid("network", "there is a second document after ---")
	}
	c := converter{}
	value, err := c.value(&root, 0)
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

// syntaxError says what is wrong, and how it is most often put right: names that begin with * have
// to be quoted in YAML.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "alias") || strings.Contains(text, "anchor") || strings.Contains(text, "expected alphabetic") {
		text += ` (a name that begins with * is quoted: "*.example.org")`
	}
	return api.Invalid("network", "the document is no YAML: %s", text)
}

// converter makes values of JSON of the nodes of one document.
type converter struct{ nodes int }

func (c *converter) value(n *yaml.Node, depth int) (any, error) {
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		return nil, fault(n, "the document is nested more than %d deep, or has more than %d values", maxDepth, maxNodes)
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
		return scalar(n)
	}
	return nil, fault(n, `references (*name) are not followed; a name that begins with * is quoted: "*.example.org"`)
}

func (c *converter) mapping(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return nil, fault(key, "keys are plain words, and << is none")
		}
		if _, twice := out[key.Value]; twice {
			return nil, fault(key, "%q is given twice", key.Value)
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
func scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!str", "!!timestamp": // a time is a word here
		return n.Value, nil
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, fault(n, "%q is not true or false", n.Value)
		}
		return b, nil
	case "!!int":
		var i int64
		if err := n.Decode(&i); err != nil {
			return nil, fault(n, "%.100q is no number that is used here", n.Value)
		}
		return i, nil
	}
	return nil, fault(n, "%.100q has the type %.50s, which has no use here", n.Value, n.Tag)
}

func fault(n *yaml.Node, format string, args ...any) error {
	return api.Invalid("network", "line %d: %s", n.Line, fmt.Sprintf(format, args...))
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
