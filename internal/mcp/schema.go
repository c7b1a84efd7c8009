package mcp

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// made are the schemas of types, which a SchemaCache knows by their addresses.
var made sync.Map // of reflect.Type to *jsonschema.Schema

// schemaOf returns the schema of a type, always the same. Descriptions are those of tags jsonschema, and as
// in package api tags enum, minimum and maximum bound values.
func schemaOf[T any]() *jsonschema.Schema {
	if s, ok := made.Load(reflect.TypeFor[T]()); ok {
		return s.(*jsonschema.Schema)
	}
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a type that has no schema
	}
	bound(s, reflect.TypeFor[T]())
	first, _ := made.LoadOrStore(reflect.TypeFor[T](), s)
	return first.(*jsonschema.Schema)
}

func bound(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice && s.Items != nil {
			s = s.Items
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[name]
		if p == nil {
			continue
		}
		if all := f.Tag.Get("enum"); all != "" {
			for _, v := range strings.Split(all, ",") {
				p.Enum = append(p.Enum, v)
			}
		}
		p.Minimum, p.Maximum = number(f.Tag.Get("minimum")), number(f.Tag.Get("maximum"))
		bound(p, f.Type)
	}
}

func number(text string) *float64 {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err) // a tag of this package
	}
	return &n
}
