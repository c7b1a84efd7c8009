package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// encode makes a request JSON. Strings that are not UTF-8 are refused: encoding/json
// would replace bytes of them, and a command would get other arguments.
func encode(request any) ([]byte, error) {
	if err := checkText(reflect.ValueOf(request), "", "it"); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(request)
	if err != nil {
		return nil, api.Errorf(api.CodeInternal, "encode request: %w", err)
	}
	return doc, nil
}

// checkText refuses strings in v that are not UTF-8. field is the JSON name of
// the place of v, and part says which of several values it is. Values are left out of the error: they may
// be secrets.
func checkText(v reflect.Value, field, part string) error {
	switch v.Kind() {
	case reflect.String:
		if at := httpwire.NotUTF8(v.String()); at >= 0 {
			return api.Invalid(field, "byte %d of %s is 0x%02x, which is not UTF-8: only text can be given here", at+1, part, v.String()[at])
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkText(v.Elem(), field, part)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if err := checkText(v.Field(i), within(field, f), part); err != nil {
					return err
				}
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil // JSON has it in base64
		}
		for i := range v.Len() {
			if err := checkText(v.Index(i), field, fmt.Sprintf("number %d", i+1)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if err := checkText(entry.Key(), field, fmt.Sprintf("the name %q", entry.Key())); err != nil {
				return err
			}
			if err := checkText(entry.Value(), field, fmt.Sprintf("the value of %q", entry.Key())); err != nil {
				return err
			}
		}
	}
	return nil
}

// within returns the JSON name of a field of a struct at outer.
func within(outer string, f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "" && f.Anonymous:
		return outer
	case outer == "":
		return name
	}
	return outer + "." + name
}
