package envd

import (
	"slices"
	"sync"
)

// followers counts the clients that follow processes. A process that has ended is removed
// when the last of them has left, so that each is told of the end.
type followers struct {
	mu  sync.Mutex
	all []*followed // each has a client
}

// followed is a process that has clients.
type followed struct {
	sandbox string
	pid     int
	clients int  // guarded by followers.mu
	told    bool // a client was told of the end; guarded by followers.mu
}

// join adds a client, which must leave.
func (f *followers) join(sandbox string, pid int) *followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.all, func(p *followed) bool { return p.sandbox == sandbox && p.pid == pid })
	if i < 0 {
		i = len(f.all)
		f.all = append(f.all, &followed{sandbox: sandbox, pid: pid})
	}
	f.all[i].clients++
	return f.all[i]
}

// tell notes that a client was told of the end.
func (f *followers) tell(at *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.told = true
}

// leave takes a client away and reports whether the process is to be removed: the client was
// the last, and the end was told.
func (f *followers) leave(at *followed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.clients--; at.clients > 0 {
		return false
	}
	f.all = slices.DeleteFunc(f.all, func(p *followed) bool { return p == at })
	return at.told
}
