// Package archtest is the part of the project's rules that a machine can check:
// which package may import which, how long a file may be, which calls are not
// made, which names are not written down, and that what the documents refer to
// exists. It has tests only. Each rule carries its reason, and the message of a
// broken one says it.
//
// It reads source text and never builds anything. It must never be imported.
package archtest
