package api

import (
	"slices"
	"strconv"
	"strings"
)

// signals are the names of Linux' signals from number 1 on. Sandboxes run Linux programs,
// also if the caller runs on another system.
var signals = []string{
	"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
	"ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
	"VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
}

// SignalNumber returns the number of a signal that is given by its name, with or without
// SIG and in any case, or by its number. The sandbox checks whether a signal of that number
// exists. The error is CodeInvalid and names field.
func SignalNumber(field, signal string) (int, error) {
	if n, err := strconv.Atoi(signal); err == nil {
		return n, nil
	}
	if i := slices.Index(signals, strings.TrimPrefix(strings.ToUpper(signal), "SIG")); i >= 0 {
		return i + 1, nil
	}
	return 0, Invalid(field, "%q is not the name or number of a signal, such as TERM, SIGINT or 9", signal)
}
