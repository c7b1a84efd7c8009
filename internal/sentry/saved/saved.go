// Package saved has the loops of the methods by which a type is saved with the kernel of a
// guest: gVisor's state package numbers the fields of a type.
//
// It must never know what the types are.
package saved

import "gvisor.dev/gvisor/pkg/state"

// Save saves what fields point to, in the order of the type's StateFields.
func Save(sink state.Sink, fields []any) {
	for i, f := range fields {
		sink.Save(i, f)
	}
}

// Load loads what Save has saved.
func Load(src state.Source, fields []any) {
	for i, f := range fields {
		src.Load(i, f)
	}
}
