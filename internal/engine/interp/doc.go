// Package interp has the interpreters of contexts and their protocol: the programs that run
// in the guest's own Python, Node and Bash (hosts/), the frames that they exchange with the
// sentry, and the messages in the frames. Nothing has to be installed in an image: the text of a program is the
// first thing that its interpreter is given to read.
//
// A program reads requests from descriptor 3 and writes answers to descriptor 4;
// its standard streams are the user's, so that no output, also of subprocesses, can be taken
// for an answer. A frame is
//
//	K RRRRRRRR LLLLLLLL\n payload
//
// with a letter for its kind, the number of the run that it belongs to and the
// length of the payload in bytes, both with eight hexadecimal digits. The length
// of the head is fixed because Bash reads it too.
//
//	request                       answers with the number of the request
//	x  a cell: its code           m  results, as they are shown: {mime: data}
//	                              d  done: Done
//	q  a cell without a number     as x
//	v  variables                  d  done: Done with Variables
//	s  seed: 64 hex digits        d  done: Done with Reseeded and Failed
//	i  interrupt (not Bash)       none of its own
//	                              h  hello, once, at the start: Hello
//	                              r  rest, before h or d: Rest, if it is another than before
//
// Requests are served one after the other. An interrupt is SIGINT to the process
// group. Node is asked first, and gets the signal if it does not listen. Python is
// asked, too, and gets the signal once the request is written: so it knows the purpose of
// a signal that comes before it has read the request. All data from a guest is bounded here
// before it is kept.
//
// The package must never know about sandboxes, gVisor or HTTP.
package interp
