// Package docs has the test that runs the console sessions of the documents: README.md,
// CONTRIBUTING.md and all pages below docs. It must never know how Ramet does what it shows:
// it uses the program only, as a reader does.
//
// A session is a fenced block of the language "console":
//
//	```console
//	$ ramet create python --name base
//	sbx_xyhptk6zniawkiov
//	$ cat > hello.txt <<'.'
//	> hello
//	> .
//	```
//
// A line that begins with "$ " is a command, lines that begin with "> " right after it go on
// with it, and the lines up to the next command are what it writes to both of its outputs. All
// blocks of a page are one session of one shell, in an empty directory, with a daemon of their
// own that has the image "python" and nothing else.
//
// Expected and real output are compared line by line. Identifiers need not be equal, but equal
// ones must be equal in both; times, durations and sizes from a KiB on are only compared for being
// there, and so are the width of columns, whether a process sleeps, and whether a state is on disk
// already. "…" stands for any text in a line, and a line of its own for any lines. The output of a
// command that goes on in the background ("&") is waited for.
//
// A block whose first line is "# not tested: REASON" is not run: it needs another machine, root or
// a long time. Each of them is a skipped test with that reason, so the output of the tests counts
// them. So is a block that runs python3 on a machine that has none.
//
// `go test ./test/docs -update` writes the real output into the documents where it differs.
//
// The tests of package client with a real daemon are here as well, as they need the same program
// and image: they use its public interface only.
package docs
