// Package textdiff compares and merges texts line by line: edit scripts, unified
// diffs and three-way merges.
//
// It works on texts in memory, and its time is bounded whatever the texts are. It must never
// know where a text comes from.
package textdiff
