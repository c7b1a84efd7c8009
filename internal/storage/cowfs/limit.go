package cowfs

import "ramet.dev/ramet/internal/storage/pages"

// The limit of a tree is on pages: its nodes and the data that they refer to, wherever they
// are. Pages that a child inherited count like its own. Pages that only a pin needs do not
// count.
//
// New data, names and attributes are refused some pages below the limit, data first. Changes
// and removals of existing files are not refused: they take pages too, for instance to hide
// an entry of the image, but these are bounded by the existing files.

// reserve returns the pages below the limit that data must leave free. Half of them are for
// names and attributes.
func (c *core) reserve() int64 {
	return min(max(c.state.Limit/32, 32), 1024, c.state.Limit/2)
}

func (c *core) used() int64 { return c.state.Blocks + c.tree.Grown() }

// Room returns ErrNoSpace if there is no room for new names or attributes of about as many
// bytes. A caller that makes some asks before, so that a change of several steps is either
// completed or not begun.
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

// Space has numbers of pages.
type Space struct {
	Limit int64 // 0: no limit
	Used  int64
	Free  int64 // pages that data may take, if there is a limit
}

// Space returns the pages that the tree has and may have.
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
