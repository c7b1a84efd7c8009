package image

import (
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/catalog"
)

// Contents are stored once for all owners; names belong to an owner. An owner sees the images
// that it has a name for, and no names of other owners.

// ownerMark begins the names of owners in names.json. No name begins with it.
const ownerMark = "@"

// For returns the store as owner sees it: with its own names, and the images that have such a
// name. The owner "" has the names without an owner.
func (s *Store) For(owner string) *Store {
	v := &Store{files: s.files, named: true}
	if owner != "" {
		v.prefix = ownerMark + owner + "/"
	}
	return v
}

// ForAll returns the store as the owner "" sees it, with the images besides that no owner has
// a name for.
func (s *Store) ForAll() *Store { return &Store{files: s.files, named: true, nameless: true} }

// ForEveryone returns the store with all images, and with the names of all owners.
func (s *Store) ForEveryone() *Store { return &Store{files: s.files, everyone: true} }

// key returns the form of a name in names.json.
func (s *Store) key(name string) string { return s.prefix + name }

// namesOf returns the names that an image has for the owner.
func (s *Store) namesOf(n catalog.Names, id string) []string {
	out := []string{}
	for key, owner := range n.Names {
		name, own := strings.CutPrefix(key, s.prefix)
		if owner == id && own && !strings.HasPrefix(name, ownerMark) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// visible returns the image as the owner sees it, or a CodeNotFound error.
func (s *Store) visible(r catalog.Record, n catalog.Names, id, ref string) (api.Image, error) {
	own := s.namesOf(n, id)
	if s.named && len(own) == 0 && !(s.nameless && s.elsewhere(n, id) == 0) {
		return api.Image{}, api.NotFound("image", ref)
	}
	img := describe(r, id, own)
	if s.everyone {
		img.Tenants = othersNames(n, id)
	}
	return img, nil
}

// othersNames returns the names that an image has for each owner but "".
func othersNames(n catalog.Names, id string) map[string][]string {
	var out map[string][]string
	for key, named := range n.Names {
		owned, others := strings.CutPrefix(key, ownerMark)
		if named != id || !others {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		owner, name, _ := strings.Cut(owned, "/")
		out[owner] = append(out[owner], name)
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// elsewhere returns how many names of others an image has.
func (s *Store) elsewhere(n catalog.Names, id string) int {
	count := 0
	for _, named := range n.Names {
		if named == id {
			count++
		}
	}
	return count - len(s.namesOf(n, id))
}

// Give gives an image, by its id, to another owner under a name. If the owner has another
// image of that name, that is a CodeNameTaken error unless replace is set.
func (s *Store) Give(id, owner, name string, replace bool) (api.Image, error) {
	if _, err := s.Resolve(id); err != nil {
		return api.Image{}, err
	}
	name, err := ParseName("name", name)
	if err != nil {
		return api.Image{}, err
	}
	to := s.For(owner)
	err = s.files.Locked(func() error {
		if !replace {
			if err := to.CheckName(name, id); err != nil {
				return err
			}
		}
		return to.setName(name, id)
	})
	if err != nil {
		return api.Image{}, err
	}
	return to.Resolve(id)
}
