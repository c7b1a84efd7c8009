// Package document reads network documents from YAML and JSON, which are the same document in two
// notations: YAML is brought to JSON, and package api decodes that.
//
// The package must never know what a document means, nor where its text comes from.
package document
