package kern

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/abi/linux"
)

// SignalName returns the name of a signal as kill -l prints it, with SIG.
func SignalName(sig linux.Signal) string {
	if n, ok := signalNames[sig]; ok {
		return n
	}
	return fmt.Sprintf("SIG%d", sig)
}

var signalNames = map[linux.Signal]string{
	linux.SIGHUP: "SIGHUP", linux.SIGINT: "SIGINT", linux.SIGQUIT: "SIGQUIT", linux.SIGILL: "SIGILL",
	linux.SIGTRAP: "SIGTRAP", linux.SIGABRT: "SIGABRT", linux.SIGBUS: "SIGBUS", linux.SIGFPE: "SIGFPE",
	linux.SIGKILL: "SIGKILL", linux.SIGUSR1: "SIGUSR1", linux.SIGSEGV: "SIGSEGV", linux.SIGUSR2: "SIGUSR2",
	linux.SIGPIPE: "SIGPIPE", linux.SIGALRM: "SIGALRM", linux.SIGTERM: "SIGTERM", linux.SIGXCPU: "SIGXCPU",
	linux.SIGXFSZ: "SIGXFSZ", linux.SIGSYS: "SIGSYS",
}
