package secrets

import (
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// Entry is a secret that is set together with others.
type Entry struct {
	Name     string
	Value    Value
	Binding  Binding
	Metadata map[string]string
}

// Check returns the error that SetAll would return, and stores nothing.
func (s *Store) Check(tenant string, entries []Entry) error {
	return s.view(func(doc *document) error {
		for _, e := range entries {
			if err := s.extend(doc, tenant, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetAll sets all secrets or none. A secret that is stored already keeps its header and its server names,
// and the names of the entry are added. undo puts back the secrets of before, unless somebody has changed
// them since; otherwise forget clears their values.
func (s *Store) SetAll(tenant string, entries []Entry) (undo func() error, forget func(), err error) {
	var before, after []record // after has no values
	err = s.change(func(doc *document) error {
		for _, e := range entries {
			if i := doc.find(tenant, e.Name); i >= 0 {
				r := doc.Secrets[i]
				r.Value = slices.Clone(r.Value)
				before = append(before, r)
			}
			if err := s.extend(doc, tenant, e); err != nil {
				return err
			}
			r := doc.Secrets[doc.find(tenant, e.Name)]
			r.Value = nil
			after = append(after, r)
		}
		return nil
	})
	forget = func() {
		for _, r := range before {
			clear(r.Value)
		}
	}
	if err != nil {
		forget()
		return nil, nil, err
	}
	undo = func() error {
		defer forget()
		return s.change(func(doc *document) error { putBack(doc, before, after); return nil })
	}
	return undo, forget, nil
}

// putBack replaces each record that is still as in after by the one in before, or removes it.
func putBack(doc *document, before, after []record) {
	for _, r := range after {
		i := doc.find(r.Tenant, r.Name)
		if i < 0 || doc.Secrets[i].Version != r.Version || !doc.Secrets[i].Updated.Equal(r.Updated) {
			continue
		}
		clear(doc.Secrets[i].Value)
		if k := slices.IndexFunc(before, func(b record) bool { return b.Name == r.Name }); k >= 0 {
			doc.Secrets[i] = before[k]
			doc.Secrets[i].Value = slices.Clone(before[k].Value)
			continue
		}
		doc.Secrets = slices.Delete(doc.Secrets, i, i+1)
	}
}

// extend puts an entry into the document.
func (s *Store) extend(doc *document, tenant string, e Entry) error {
	b := e.Binding
	if i := doc.find(tenant, e.Name); i >= 0 {
		had := doc.Secrets[i].Binding
		if !strings.EqualFold(had.Header, b.Header) && had.Header != Any {
			return api.Errorf(api.CodeConflict, "secret %s is for the header %s, not for %s: take another name, or 'ramet secret rm %s'", e.Name, had.Header, b.Header, e.Name)
		}
		names := slices.Clone(had.Names)
		for _, name := range b.Names {
			if !slices.Contains(names, name) && !slices.Contains(names, Any) {
				names = append(names, name)
			}
		}
		header := b.Header
		if b = had; b.Header != Any {
			b.Header = header
		}
		b.Names = names
	}
	if err := check(e.Name, e.Value, &b); err != nil {
		return err
	}
	if err := api.ValidMetadata("metadata", e.Metadata); err != nil {
		return err
	}
	return s.put(doc, tenant, e.Name, e.Value, b, e.Metadata)
}
