// Package process is the process of the gateway: it takes the socket and the lock of the gateway,
// confines itself, and serves until nobody needs it.
//
// It is a program of its own, cmd/ramet-gateway, which package host starts with Word as its first
// argument: what the gateway is linked with would cost each command of ramet 1.6 ms at its start,
// and what ramet is linked with would be in a process that strangers talk to. It inherits
//
//	3  the file of the lock, held, which says whose process it is
//	4  the write end of a pipe: one Ready message
//	5  a file in memory: its Config
//	6  the directory of held requests, if there is one
//
// and nothing else of the daemon. It goes on when the daemon ends.
//
// What it holds is worth more than what a sentry does: sockets of the host, and the secrets of
// requests. It is confined in layers, each of which is told with the reason if the host lacks it:
//
//	own_user      a user of the host that nobody is, if the daemon is root's
//	no_new_privs  no program with privileges, and no capability
//	undumpable    no core, and no other process of the user reads its memory
//	limits        descriptors up to the host's limit; no locked memory, no message queues
//	landlock      of the file system it reads where names and certificates are configured, and writes
//	              the directory of held requests; it binds no port, and reaches no process by a signal
//	              or an abstract socket
//	seccomp       system calls of sockets, memory, threads and of reading files, and of writing them if
//	              requests can be held
//
// Where Landlock is missing and the gateway is the user of the daemon, requests are not held: nothing
// else would keep it from the user's files.
//
// The package must never know what a sandbox is to a daemon.
package process
