// Package auditlog records which caller changed which thing: a line of JSON for each change, in
// files that are only appended to. Each line has the digest of the line before it, also
// across files, so that Verify finds a line that was changed, removed or moved. The end of
// the chain is in a file of its own, so that Verify finds a missing tail.
//
//	audit/0000000000000001.jsonl    named by the number of its first line
//	audit/0000000000041233.jsonl
//	audit/head                      number and digest of the last line
//
// A process that can write to the directory can write a new chain. To find that, an operator
// keeps the head that a verification reports somewhere else, and gives it to a later one.
//
// Lines have ids, numbers and digests. The package must never write the contents of
// requests: commands, environments, files and tokens.
package auditlog
