package image

import (
	"ramet.dev/ramet/api"
)

// Tag gives the image that ref means another name. A name that another image has
// moves. Errors: CodeInvalid for the name, else as of Resolve.
func (s *Store) Tag(ref, name string) (api.Image, error) {
	name, err := ParseName("name", name)
	if err != nil {
		return api.Image{}, err
	}
	err = s.files.Locked(func() error {
		img, err := s.Resolve(ref)
		if err != nil {
			return err
		}
		return s.setName(name, img.ID)
	})
	if err != nil {
		return api.Image{}, err
	}
	return s.Resolve(name)
}

// A name that another image has moves to the new image if the user asks for an image of that
// name to be made (build, import, pull), or for the image to be replaced. Otherwise it is an
// error: an image that is committed from a sandbox, or given to another owner, does not
// replace another image by accident.

// CheckName returns a CodeNameTaken error if an image other than id has the name. id may be
// empty.
func (s *Store) CheckName(name, id string) error {
	n, err := s.files.Names()
	if err != nil {
		return err
	}
	if has := n.Names[s.key(name)]; has != "" && has != id {
		return api.Errorf(api.CodeNameTaken, "name: image %s is called %q already: choose another name, or take it from that image (--force, \"replace\": true)", has, name)
	}
	return nil
}

// setName must run under the store's lock.
func (s *Store) setName(name, id string) error {
	n, err := s.files.Names()
	if err != nil {
		return err
	}
	n.Names[s.key(name)] = id
	return s.files.SetNames(n)
}

// Remove takes a name away, or an image with all its names if ref is an id. An
// image that loses its last name is removed too. inUse tells whether an image is
// needed; it is called with the store locked and must not use it. Then the error
// is CodeConflict and nothing changes. The result reports whether the image itself
// was removed.
func (s *Store) Remove(ref string, inUse func(id string) error) (removed bool, err error) {
	err = s.files.Locked(func() error {
		img, name, err := s.resolve(ref)
		if err != nil {
			return err
		}
		n, err := s.files.Names()
		if err != nil {
			return err
		}
		gone := img.Names
		if name != "" {
			gone = []string{name}
		}
		removed = len(gone) == len(img.Names) && s.elsewhere(n, img.ID) == 0
		if removed {
			if err := inUse(img.ID); err != nil {
				removed = false
				return err
			}
		}
		for _, g := range gone {
			delete(n.Names, s.key(g))
		}
		if err := s.files.SetNames(n); err != nil {
			return err
		}
		if !removed {
			return nil
		}
		return s.files.Remove(img.ID)
	})
	return removed, err
}

// RemoveNameless removes the image id if no owner has a name for it. inUse is as of
// Remove. That the image is gone, or has a name again, is no error.
func (s *Store) RemoveNameless(id string, inUse func(id string) error) (removed bool, err error) {
	err = s.files.Locked(func() error {
		if _, err := s.files.Record(id); api.CodeOf(err) == api.CodeNotFound {
			return nil
		}
		n, err := s.files.Names()
		if err != nil {
			return err
		}
		for _, named := range n.Names {
			if named == id {
				return nil
			}
		}
		if err := inUse(id); err != nil {
			return err
		}
		if err := s.files.Remove(id); err != nil {
			return err
		}
		removed = true
		return nil
	})
	return removed, err
}
