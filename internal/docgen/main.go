// Command docgen writes the documents that are generated from the code: the OpenAPI document
// of the REST interface, and the page of it that people read.
//
// It only renders what the code says of itself: prose stands in the descriptions of the code
// or in pages of their own, never here.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
)

func main() {
	root := flag.String("root", ".", "directory of the repository")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// write generates all documents below root.
func write(root string) error {
	docs, err := generate()
	if err != nil {
		return err
	}
	for path, text := range docs {
		if err := os.WriteFile(filepath.Join(root, path), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the documents by their paths in the repository. A daemon serves the OpenAPI
// document with its own version instead of that of the interface.
func generate() (map[string][]byte, error) {
	var openapi bytes.Buffer
	if err := json.Indent(&openapi, rest.Document(api.InterfaceVersion), "", " "); err != nil {
		return nil, fmt.Errorf("indent the OpenAPI document: %w", err)
	}
	openapi.WriteByte('\n')
	page, err := restPage(openapi.Bytes())
	if err != nil {
		return nil, fmt.Errorf("render the page of the REST interface: %w", err)
	}
	return map[string][]byte{"api/openapi.json": openapi.Bytes(), "docs/rest-api.md": page}, nil
}
