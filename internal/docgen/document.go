package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// document is the part of an OpenAPI document that the page shows.
type document struct {
	Info struct {
		Title       string `json:"title"`
		Description string `json:"description"`
	} `json:"info"`
	Tags []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	} `json:"tags"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components struct {
		Schemas   map[string]*schema   `json:"schemas"`
		Responses map[string]*response `json:"responses"`
	} `json:"components"`
}

type operation struct {
	Method      string                `json:"-"`
	Path        string                `json:"-"`
	ID          string                `json:"operationId"`
	Summary     string                `json:"summary"`
	Description string                `json:"description"`
	Tags        []string              `json:"tags"`
	Security    []map[string][]string `json:"security"`
	Parameters  []parameter           `json:"parameters"`
	RequestBody *struct {
		Required bool             `json:"required"`
		Content  map[string]media `json:"content"`
	} `json:"requestBody"`
	Responses map[string]*response `json:"responses"`
}

type parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Description string  `json:"description"`
	Required    bool    `json:"required"`
	Schema      *schema `json:"schema"`
}

type response struct {
	Ref         string             `json:"$ref"`
	Description string             `json:"description"`
	Content     map[string]media   `json:"content"`
	Messages    map[string]*schema `json:"x-messages"`
}

type media struct {
	Schema  *schema         `json:"schema"`
	Example json.RawMessage `json:"example"`
}

type schema struct {
	Ref              string             `json:"$ref"`
	Type             kind               `json:"type"`
	Format           string             `json:"format"`
	ContentEncoding  string             `json:"contentEncoding"`
	Description      string             `json:"description"`
	Enum             []any              `json:"enum"`
	Default          any                `json:"default"`
	Minimum          *float64           `json:"minimum"`
	Maximum          *float64           `json:"maximum"`
	MaxLength        *int               `json:"maxLength"`
	MinItems         *int               `json:"minItems"`
	MaxItems         *int               `json:"maxItems"`
	Items            *schema            `json:"items"`
	AnyOf            []*schema          `json:"anyOf"`
	Properties       map[string]*schema `json:"properties"`
	Required         []string           `json:"required"`
	AdditionalFields additional         `json:"additionalProperties"`
	Events           map[string]*schema `json:"x-events"`
}

// kind is the JSON types that a schema allows, as words.
type kind string

// UnmarshalJSON implements json.Unmarshaler.
func (k *kind) UnmarshalJSON(data []byte) error {
	var names []string
	if json.Unmarshal(data, &names) != nil { // one that is not in a list
		names = []string{""}
		if err := json.Unmarshal(data, &names[0]); err != nil {
			return err
		}
	}
	*k = kind(strings.Join(names, " or "))
	return nil
}

// additional is the type of the values of a map, or nil: OpenAPI writes true or false where
// there is no type.
type additional struct{ *schema }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] != '{' {
		return nil
	}
	a.schema = &schema{}
	return json.Unmarshal(data, a.schema)
}

func parse(openapi []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(openapi, &d); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	for path, methods := range d.Paths {
		for method, op := range methods {
			op.Method, op.Path = strings.ToUpper(method), path
			if len(op.Tags) != 1 {
				return nil, fmt.Errorf("operation %s has the tags %q: want one", op.ID, op.Tags)
			}
		}
	}
	return &d, nil
}

// methodOrder is the order of the operations of one path.
var methodOrder = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

// operations returns the operations of a tag, ordered by path and method.
func (d *document) operations(tag string) []*operation {
	var ops []*operation
	for _, methods := range d.Paths {
		for _, op := range methods {
			if op.Tags[0] == tag {
				ops = append(ops, op)
			}
		}
	}
	slices.SortFunc(ops, func(a, b *operation) int {
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return slices.Index(methodOrder, a.Method) - slices.Index(methodOrder, b.Method)
	})
	return ops
}

// scope returns the scope of the tokens that an operation takes, or "" if it needs none.
func (o *operation) scope() string {
	for _, s := range o.Security {
		for _, scopes := range s {
			if len(scopes) > 0 {
				return scopes[0]
			}
		}
	}
	return ""
}

// refName returns the last part of a reference.
func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// itemOf returns the name of the type that a schema is a page of, if it is a page of a list.
func (d *document) itemOf(name string) (item string, ok bool) {
	item, ok = strings.CutPrefix(name, "List")
	s := d.Components.Schemas[name]
	if !ok || s == nil || s.Properties["items"] == nil || s.Properties["items"].Items == nil {
		return "", false
	}
	return item, refName(s.Properties["items"].Items.Ref) == item
}

// bodies returns the types that have no use but as the body of one operation.
func (d *document) bodies() map[string]bool {
	uses := map[string]int{}
	count := func(s *schema) {
		s.walk(func(s *schema) {
			if s.Ref != "" {
				uses[refName(s.Ref)]++
			}
		})
	}
	for _, s := range d.Components.Schemas {
		count(s)
	}
	only := map[string]bool{}
	for _, methods := range d.Paths {
		for _, op := range methods {
			if op.RequestBody != nil {
				for _, m := range op.RequestBody.Content {
					count(m.Schema)
					if m.Schema != nil && m.Schema.Ref != "" {
						only[refName(m.Schema.Ref)] = true
					}
				}
			}
			for _, r := range op.Responses {
				for _, s := range r.Messages {
					count(s)
				}
				for _, m := range r.Content {
					count(m.Schema)
				}
			}
		}
	}
	for name := range only {
		only[name] = uses[name] == 1
	}
	return only
}

// walk calls f with s and all schemas in it.
func (s *schema) walk(f func(*schema)) {
	if s == nil {
		return
	}
	f(s)
	s.Items.walk(f)
	s.AdditionalFields.schema.walk(f)
	for _, inner := range s.AnyOf {
		inner.walk(f)
	}
	for _, inner := range s.Properties {
		inner.walk(f)
	}
	for _, inner := range s.Events {
		inner.walk(f)
	}
}

// typeOf returns the words for a schema, with a link if it is a type with a section.
func (d *document) typeOf(s *schema) string {
	switch {
	case s == nil:
		return "any"
	case s.Ref != "":
		name := refName(s.Ref)
		if item, ok := d.itemOf(name); ok {
			return "page of [" + item + "](#" + strings.ToLower(item) + ")"
		}
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case len(s.AnyOf) > 0:
		var of []string
		for _, a := range s.AnyOf {
			of = append(of, d.typeOf(a))
		}
		return strings.Join(of, " or ")
	case s.Type == "array":
		return "list of " + d.typeOf(s.Items)
	case s.AdditionalFields.schema != nil && len(s.Properties) == 0:
		return "map of " + d.typeOf(s.AdditionalFields.schema)
	case s.ContentEncoding != "":
		return s.ContentEncoding
	case s.Format == "date-time":
		return "time"
	case s.Format == "binary":
		return "bytes"
	case s.Type == "":
		return "any"
	}
	return string(s.Type)
}

// limits returns the values that a schema allows, in words, or "".
func limits(s *schema) string {
	if s == nil {
		return ""
	}
	if s.Type == "array" && s.Items != nil && len(s.Items.Enum) > 0 {
		return "of " + values(s.Items.Enum)
	}
	var words []string
	if len(s.Enum) > 0 {
		words = append(words, values(s.Enum))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		words = append(words, fmt.Sprintf("%v to %v", number(*s.Minimum), number(*s.Maximum)))
	case s.Minimum != nil && *s.Minimum != 0: // most numbers are not negative
		words = append(words, fmt.Sprintf("at least %v", number(*s.Minimum)))
	case s.Maximum != nil:
		words = append(words, fmt.Sprintf("at most %v", number(*s.Maximum)))
	}
	if s.MaxLength != nil {
		words = append(words, fmt.Sprintf("at most %d characters", *s.MaxLength))
	}
	if s.MaxItems != nil {
		words = append(words, fmt.Sprintf("at most %d", *s.MaxItems))
	}
	if s.Default != nil {
		words = append(words, fmt.Sprintf("default `%v`", s.Default))
	}
	return strings.Join(words, "; ")
}

// number writes whole numbers without an exponent.
func number(f float64) string {
	if f == float64(int64(f)) {
		return fmt.Sprint(int64(f))
	}
	return fmt.Sprint(f)
}

func values(of []any) string {
	var words []string
	for _, v := range of {
		words = append(words, fmt.Sprintf("`%v`", v))
	}
	return strings.Join(words, ", ")
}
