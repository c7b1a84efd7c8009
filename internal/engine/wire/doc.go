// Package wire is the protocol between the host side and a sentry: framing,
// messages and the passing of file descriptors.
//
// A sentry serves a SOCK_SEQPACKET unix socket. A packet is a message: a type byte and a
// body. Each call has a connection of its own:
//
//	host                          sentry
//	  Call{op, body} + FDs   ->
//	                         <-   Reply{body} + FDs   or   Fail{code, detail}
//
// and for an exec, between the call and its end:
//
//	Stdin bytes            ->   (an empty Stdin closes it)
//	                       <-   Stdout bytes, Stderr bytes
//	                       <-   Reply{exit status}
//
// An exec with a key goes on when the connection is lost, for its caller to come back,
// unless a Cancel was sent before.
//
// An attach is the same, but that output comes as chunks with sequence numbers:
//
//	Stdin bytes            ->
//	                       <-   Chunk
//	                       <-   Reply{position, exit status}
//
// A call about files has a shape for each verb:
//
//	stat, change      Call ->                                      <- Reply{FileInfo}
//	read              Call ->  <- Item{FileInfo}, then Range -> <- Data… again and again
//	write             Call ->  Data… -> Data{} ->                  <- Reply{FileInfo}
//	list, search      Call ->                    <- Item…          <- Reply
//	archive           Call ->                    <- Data…          <- Reply
//	extract           Call ->  Data… -> Data{} ->                  <- Reply{ExtractResult}
//	watch             Call ->                    <- Item{FileEvents}… until the connection is closed
//
// A sentry that fails stops reading and sends Fail at once.
//
// A dial becomes a connection to the port:
//
//	host                          sentry
//	  Call{dial}             ->
//	                         <-   Reply, when it is connected
//	  Data…, Data{} for EOF  ->
//	                         <-   Data…, Data{} for EOF, or Fail for a reset
//
// Both sides close it when both directions have ended, or before.
//
// The code of a run is sent as standard input is. Its answer has the output and the parts
// of the interpreter's results:
//
//	Stdin bytes            ->   (an empty Stdin ends the code)
//	                       <-   Stdout bytes, Stderr bytes, Part{kind, last} bytes
//	                       <-   Reply{Ran}
//
// A daemon serves the requests of a sandbox with self-control, until another daemon does or
// the connection is closed:
//
//	Call                   ->
//	                       <-   Request
//	Answer                 ->   (and so on, in any order)
//
// It serves the operations of a sandbox on volumes in the same way, one after the other. A
// sentry is asked for that also while it is blank:
//
//	Call                   ->
//	                       <-   Request{VolumeCall}
//	Answer{VolumeAnswer}   ->   + the FD of contents
//
// Closing the connection before the reply cancels the call; an exec's process
// group is killed, an attach's process runs on, and a run is
// interrupted.
//
// Both sides come in one binary and are built together, so there is no version
// negotiation beyond the build id in Hello. Error codes are those of package api, so that
// the caller gets the type of an error.
//
// The package must never import gVisor, nor know what a message does.
package wire
