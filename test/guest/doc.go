// Command guest is the one program in the image of the suites of tests. Run as
// "guest hold" it keeps a value in every kind of state that a fork must carry
// over: memory of all sorts, files, sockets, pipes, terminals, timers, signals,
// threads and other processes. "guest ask" reads and changes the values. Reading
// one always uses the thing it is kept in, so that a broken pipe or a dead thread
// cannot hide behind a copy in memory.
//
// "guest fs" tries what a file system must do, see fsCase, and "guest fs fuzz"
// does random things to one, see fuzzOp. Both work on any file system, of the
// host too.
//
// The other subcommands are what tests would use a shell and its tools for.
//
// But for "guest fs" it runs inside a sandbox only. It needs nothing but /proc,
// /dev and a writable root. It must never know what a sandbox is.
package main
