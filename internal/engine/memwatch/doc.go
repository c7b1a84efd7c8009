// Package memwatch ends a process whose memory is beyond a limit, where no control group can.
//
// It reads the memory again and again. The package must never know what the process is.
package memwatch
