// Package reach is what the records of sandboxes and of their snapshots have of a network.
//
// The package must never know how a policy is enforced.
package reach

import (
	"maps"
	"slices"
	"time"

	"ramet.dev/ramet/api"
)

// Network is what a sandbox may reach.
type Network struct {
	// Policy is the document; nil if there is no network.
	Policy *api.NetworkPolicy
	Kept
}

// Kept is what is stored of a network besides its document. Children and restored sandboxes have it
// as well.
type Kept struct {
	// Profiles are those that the document names, as they were when it was set.
	Profiles map[string]api.NetworkPolicy `json:"profiles,omitempty"`
	// Authority is that of the sandbox's tree, sealed. Its programs trust the certificate from the
	// first time on that a document treats requests.
	Authority []byte `json:"authority,omitempty"`
	// Certificate is its certificate, in PEM.
	Certificate []byte `json:"certificate,omitempty"`
	// Placeholders are what programs have in place of secrets, by their names.
	Placeholders map[string]string `json:"placeholders,omitempty"`
	// RecordGroup names the branches of a fork that see the same answers.
	RecordGroup string `json:"record_group,omitempty"`
	// Hold has requests wait that change something, whatever the document says, until a caller ends it.
	Hold api.NetworkHold `json:"hold,omitempty"`
	// Pending is what is still to become of held requests. Children and restored sandboxes do not have it.
	Pending
}

// Pending is what was decided on held requests, and is still to be done.
type Pending struct {
	// Releases are children that were promoted whose held requests are to be sent.
	Releases []string `json:"releases,omitempty"`
	// Undone are rollbacks whose held requests are to be dropped. They come before Releases.
	Undone []Undone `json:"undone,omitempty"`
}

// Undone is what a sandbox did whose state was replaced by one of before: from a moment on until another,
// and what the run that ended with it did after that.
type Undone struct {
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since,omitzero"` // zero undoes all
	Until   time.Time `json:"until"`
	Run     string    `json:"run,omitempty"` // key of its sentry
}

// Open reports whether anything is to be done.
func (p Pending) Open() bool { return len(p.Releases) > 0 || len(p.Undone) > 0 }

// Done removes what was done. What was added meanwhile stays.
func (p *Pending) Done(done *Pending) {
	p.Releases = slices.DeleteFunc(slices.Clone(p.Releases), func(id string) bool { return slices.Contains(done.Releases, id) })
	p.Undone = slices.DeleteFunc(slices.Clone(p.Undone), func(u Undone) bool { return slices.Contains(done.Undone, u) })
}

// Undo notes that the state of a sandbox is replaced, which may hold requests.
func (k *Kept) Undo(u Undone) {
	if len(k.Authority) > 0 {
		k.Undone = append(slices.Clip(k.Undone), u)
	}
}

// Inherit makes k that of a sandbox which goes on with the state of a child: its programs trust the
// authority that the child's did, and have its placeholders. What the child held is to be sent. A child
// without an authority leaves k its own, which its programs have yet to trust.
func (k *Kept) Inherit(child *Kept, id string) {
	if len(child.Authority) > 0 {
		k.Authority, k.Certificate = child.Authority, child.Certificate
		k.Releases = append(append(slices.Clip(k.Releases), child.Releases...), id)
		k.Undone = append(slices.Clip(k.Undone), child.Undone...)
	}
	if len(child.Placeholders) > 0 {
		had := k.Placeholders
		k.Placeholders = maps.Clone(child.Placeholders)
		for name, p := range had {
			if _, has := k.Placeholders[name]; !has {
				k.Placeholders[name] = p
			}
		}
	}
}
