// Package document reads and writes network documents, and reads plans of explorations, in YAML and
// JSON, which are two notations of the same document: YAML is brought to JSON, and package api
// decodes that.
//
// The package must never know what a document means, nor where its text comes from.
package document
