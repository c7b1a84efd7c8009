package envd

import (
	"errors"
	"io"
	"mime/multipart"

	"ramet.dev/ramet/api"
)

// eachPart calls f with the files of a form, whose parts are read once. The part of a text that is sent as "file" has no
// name: the request names the file.
func eachPart(body io.Reader, boundary string, f func(name string, from io.Reader) error) error {
	if boundary == "" {
		return api.Invalid("Content-Type", "the form has no boundary")
	}
	parts := multipart.NewReader(body, boundary)
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return api.Invalid("body", "it is not a form: %v", err)
		}
		name := fileName(part.Header.Get("Content-Disposition"))
		if name == "" && part.FormName() != "file" {
			continue // another field
		}
		if err := f(name, part); err != nil {
			return err
		}
	}
}
