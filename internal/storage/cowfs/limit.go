package cowfs

import "ramet.dev/ramet/internal/storage/pages"

// A tree has a limit of pages, of nodes and of data that it refers to, wherever they
// are: what a child inherited counts as if it were its own. Pages that only a pin
// needs do not count.
//
// What is new is refused some pages below the limit, data earlier than names. What
// changes or removes something that exists is not refused: it takes pages too, for
// instance to hide an entry of the image, but never more than that is worth.

// reserve is how much of the limit data must leave, in pages. Half of it is for
// names and attributes.
func (c *core) reserve() int64 {
	return min(max(c.state.Limit/32, 32), 1024, c.state.Limit/2)
}

func (c *core) used() int64 { return c.state.Blocks + c.tree.Grown() }

// Room returns ErrNoSpace if there is no room for new names or attributes which
// take about as many bytes. Whoever makes some asks before, so that a change of
// several steps is done or not begun.
func (c *core) Room(bytes int) error {
	c.mu.RLock()
	full := c.state.Limit > 0 && c.used()+int64(bytes/pages.PageSize) >= c.state.Limit-c.reserve()/2
	ready := c.store.ReadyNodes() >= pages.RoomNodes
	c.mu.RUnlock()
	if full {
		return pages.ErrNoSpace
	}
	if ready {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store.EnsureNodes(pages.RoomNodes)
}

// Space is how many pages there are.
type Space struct {
	Limit int64 // 0: there is none
	Used  int64
	Free  int64 // that data may take, if there is a limit
}

// Space returns how many pages the tree has, and how many it may have.
func (c *core) Space() Space {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.space()
}

func (c *core) space() Space {
	s := Space{Limit: c.state.Limit, Used: c.used()}
	s.Free = max(0, s.Limit-c.reserve()-s.Used)
	return s
}
