package route

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
)

// registerForms tells the document about types that have more than one form in JSON, which their
// fields do not say.
func registerForms(r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[api.NetworkRule](), reflect.TypeFor[ruleForms]())
	r.RegisterTypeAlias(reflect.TypeFor[api.PortRange](), reflect.TypeFor[portForms]())
	r.RegisterTypeAlias(reflect.TypeFor[api.SandboxSelector](), reflect.TypeFor[selectorForms]())
}

// NetworkRuleObject is a rule as an object. The document calls the schema by the name of the type.
type NetworkRuleObject api.NetworkRule

// ruleForms is a rule: a string or an object.
type ruleForms struct{}

// Schema implements huma.SchemaProvider.
func (ruleForms) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "a string such as example.org:443, or an object",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Examples: []any{"packages.example.org", "*.files.example.org", "git.example.com:22", "10.1.0.0/16:5432"}},
			r.Schema(reflect.TypeFor[NetworkRuleObject](), true, ""),
		},
	}
}

// portForms is a range of ports: a number or a string.
type portForms struct{}

// Schema implements huma.SchemaProvider.
func (portForms) Schema(huma.Registry) *huma.Schema {
	first, last := 1., 65535.
	return &huma.Schema{
		Description: "a port, a range such as 8000-8099, or * for all ports",
		OneOf: []*huma.Schema{
			{Type: huma.TypeInteger, Minimum: &first, Maximum: &last},
			{Type: huma.TypeString, Pattern: `^(\*|[0-9]{1,5}(-[0-9]{1,5})?)$`},
		},
	}
}

// selectorForms is a selector of sandboxes: a string or an object.
type selectorForms struct{}

// Schema implements huma.SchemaProvider.
func (selectorForms) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "the name of a sandbox, * for all sandboxes of the tenant, or metadata that they have",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}},
		},
	}
}
