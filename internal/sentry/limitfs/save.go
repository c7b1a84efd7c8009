package limitfs

import (
	"context"

	"gvisor.dev/gvisor/pkg/state"
	"ramet.dev/ramet/internal/sentry/saved"
)

// The methods below are what gVisor's state package asks of saved types: a process may have a file open, or its
// working directory here. Upstream generates them with a tool that is not part of its Go module.

const prefix = "ramet.dev/ramet/internal/sentry/limitfs."

func (*FilesystemType) StateTypeName() string                   { return prefix + "FilesystemType" }
func (*FilesystemType) StateFields() []string                   { return nil }
func (*FilesystemType) StateSave(state.Sink)                    {}
func (*FilesystemType) StateLoad(context.Context, state.Source) {}

func (*ProcType) StateTypeName() string                   { return prefix + "ProcType" }
func (*ProcType) StateFields() []string                   { return nil }
func (*ProcType) StateSave(state.Sink)                    {}
func (*ProcType) StateLoad(context.Context, state.Source) {}

func (*filesystem) StateTypeName() string { return prefix + "filesystem" }
func (*filesystem) StateFields() []string { return []string{"Filesystem", "minor"} }
func (fs *filesystem) StateSave(sink state.Sink) {
	sink.Save(0, &fs.Filesystem)
	sink.Save(1, &fs.minor)
}
func (fs *filesystem) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &fs.Filesystem)
	src.Load(1, &fs.minor)
}

func (*directory) StateTypeName() string       { return prefix + "directory" }
func (*directory) StateFields() []string       { return []string{"StaticDirectory"} }
func (d *directory) StateSave(sink state.Sink) { sink.Save(0, &d.StaticDirectory) }
func (d *directory) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &d.StaticDirectory)
}

func (*file) StateTypeName() string { return prefix + "file" }
func (*file) StateFields() []string {
	return []string{"DynamicBytesFile", "name", "memory", "cpu", "pids"}
}
func (f *file) fields() []any {
	return []any{&f.DynamicBytesFile, &f.name, &f.limits.Memory, &f.limits.CPU, &f.limits.Pids}
}
func (f *file) StateSave(sink state.Sink)                     { saved.Save(sink, f.fields()) }
func (f *file) StateLoad(_ context.Context, src state.Source) { saved.Load(src, f.fields()) }

func init() {
	state.Register((*FilesystemType)(nil))
	state.Register((*ProcType)(nil))
	state.Register((*filesystem)(nil))
	state.Register((*directory)(nil))
	state.Register((*file)(nil))
}
