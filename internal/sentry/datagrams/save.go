package datagrams

import (
	gocontext "context"

	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/saved"
)

// The methods below are what gVisor's state package asks of saved types. gVisor generates them with a tool that is
// not part of its Go module.

const prefix = "ramet.dev/ramet/internal/sentry/datagrams."

func init() {
	state.Register((*senders)(nil))
	state.Register((*sender)(nil))
}

func (*senders) StateTypeName() string                               { return prefix + "senders" }
func (*senders) StateFields() []string                               { return []string{"list", "prune"} }
func (all *senders) fields() []any                                   { return []any{&all.list, &all.prune} }
func (all *senders) StateSave(sink state.Sink)                       { saved.Save(sink, all.fields()) }
func (all *senders) StateLoad(_ gocontext.Context, src state.Source) { saved.Load(src, all.fields()) }

func (*sender) StateTypeName() string                             { return prefix + "sender" }
func (*sender) StateFields() []string                             { return []string{"socket", "waiters"} }
func (s *sender) fields() []any                                   { return []any{&s.socket, &s.waiters} }
func (s *sender) StateSave(sink state.Sink)                       { saved.Save(sink, s.fields()) }
func (s *sender) StateLoad(_ gocontext.Context, src state.Source) { saved.Load(src, s.fields()) }
