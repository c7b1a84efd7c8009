package sandboxes

import (
	"sync"

	"ramet.dev/ramet/api"
)

// Names is the names of sandboxes, and of those being made. It is safe for concurrent use.
type Names struct {
	mu  sync.Mutex
	ids map[owned]string
}

// owned is a name, which is one tenant's.
type owned struct{ tenant, name string }

// Reserve takes names for new sandboxes of a tenant, all or none. Empty names are
// skipped.
func (n *Names) Reserve(tenant string, names []string, ids []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, name := range names {
		if name == "" {
			continue
		}
		err := api.ValidName("name", name)
		if _, taken := n.ids[owned{tenant, name}]; err == nil && taken {
			err = api.Errorf(api.CodeNameTaken, "a sandbox is called %q already", name)
		}
		if err != nil {
			n.release(tenant, names[:i])
			return err
		}
		n.ids[owned{tenant, name}] = ids[i]
	}
	return nil
}

// Release gives up names of a tenant.
func (n *Names) Release(tenant string, names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release(tenant, names)
}

// release is Release. The caller holds n.mu.
func (n *Names) release(tenant string, names []string) {
	for _, name := range names {
		delete(n.ids, owned{tenant, name})
	}
}

// id returns the id of the sandbox that a tenant calls ref, which is ref if it is no name.
func (n *Names) id(tenant, ref string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.ids[owned{tenant, ref}]; ok {
		return id
	}
	return ref
}
