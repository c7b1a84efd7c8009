// Package audit writes down who did what: one line of JSON for each change, in files
// that are only appended to. Each line has the digest of the one before, over files
// as well, so that a line that was changed, removed or moved is found; the end of
// the chain is written down besides, so that a missing tail is.
//
//	audit/0000000000000001.jsonl    named by the number of its first line
//	audit/0000000000041233.jsonl
//	audit/head                      number and digest of the last line
//
// Who can write to the directory can write a new chain. Against that helps to keep
// what Head returns somewhere else, and to give it to Verify.
//
// Lines have ids, numbers and digests. The package must never write what was in
// requests: commands, environments, contents and tokens.
package audit
