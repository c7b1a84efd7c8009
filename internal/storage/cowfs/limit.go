package cowfs

// A tree has a limit of pages, of nodes and of data that it refers to, wherever they
// are: what a child inherited counts as if it were its own. Pages that only a pin
// needs do not count.
//
// What is new is refused some pages below the limit, data earlier than names. What
// changes or removes something that exists is not refused: it takes pages too, for
// instance to hide an entry of the image, but never more than that is worth.

// reserve is how much of the limit data must leave, in pages. Half of it is for
// names and attributes.
func (f *FS) reserve() int64 {
	return min(max(f.state.Limit/32, 32), 1024, f.state.Limit/2)
}

func (f *FS) used() int64 { return f.state.Blocks + f.tree.nodes }

// Room returns ErrNoSpace if there is no room for new names or attributes which
// take about as many bytes. Whoever makes some asks before, so that a change of
// several steps is done or not begun.
func (f *FS) Room(bytes int) error {
	f.mu.RLock()
	full := f.state.Limit > 0 && f.used()+int64(bytes/PageSize) >= f.state.Limit-f.reserve()/2
	ready := f.store.free1 >= roomNodes
	f.mu.RUnlock()
	if full {
		return ErrNoSpace
	}
	if ready {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store.ensureNodes(roomNodes)
}

// roomForData returns how many pages there are for a run of a file, at most as many
// as it has, or ErrNoSpace.
func (f *FS) roomForData(r *Run) (uint64, error) {
	if err := f.store.ensureNodes(roomNodes); err != nil {
		return 0, err
	}
	if r.Page != 0 || f.state.Limit == 0 { // they take the place of others
		return r.N, nil
	}
	free := f.space().Free
	if free == 0 {
		return 0, ErrNoSpace
	}
	return min(r.N, uint64(free)), nil
}

// Space is how many pages there are.
type Space struct {
	Limit int64 // 0: there is none
	Used  int64
	Free  int64 // that data may take, if there is a limit
}

// Space returns how many pages the tree has, and how many it may have.
func (f *FS) Space() Space {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.space()
}

func (f *FS) space() Space {
	s := Space{Limit: f.state.Limit, Used: f.used()}
	s.Free = max(0, s.Limit-f.reserve()-s.Used)
	return s
}
