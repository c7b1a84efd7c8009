package sentry

import (
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	saved "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/engine/wire"
)

// learn has packages build the tables that they build when they first meet a type: how it is
// encoded, and whether it has certain methods. The zygote does it once for all sentries: it
// would take each of them the better part of a millisecond.
func learn() error {
	for _, v := range []any{wire.Hello{}, wire.Loaded{}, wire.Started{}, wire.Exited{}, wire.Frozen{}} {
		if _, err := json.Marshal(v); err != nil {
			return fmt.Errorf("learn to encode %T: %w", v, err)
		}
	}
	for _, call := range []string{`{"op":"load","load":{}}`, `{"op":"exec","exec":{}}`} {
		if err := json.Unmarshal([]byte(call), &wire.Call{}); err != nil {
			return fmt.Errorf("learn to decode %s: %w", call, err)
		}
	}
	one := &saved.MemoryFileMetadataProto{
		Chunks: []*saved.ChunkInfoProto{{}}, MemAcct: []*saved.MemAcctRangeProto{{}},
		UnfreeSmall: []*saved.UnfreeRangeProto{{}}, UnwasteSmall: []*saved.FileRangeProto{{}},
	}
	b, err := proto.Marshal(one)
	if err == nil {
		err = proto.Unmarshal(b, one)
	}
	if err != nil {
		return fmt.Errorf("learn what is saved of memory: %w", err)
	}
	learnSaved(reflect.TypeFor[kernel.Kernel](), map[reflect.Type]bool{})
	return nil
}

// learnSaved looks up the methods by which t, and the types that it refers to, are saved and
// loaded.
func learnSaved(t reflect.Type, known map[reflect.Type]bool) {
	if known[t] {
		return
	}
	known[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		learnSaved(t.Elem(), known)
	case reflect.Map:
		learnSaved(t.Key(), known)
		learnSaved(t.Elem(), known)
	case reflect.Struct:
		_, _ = reflect.NewAt(t, nil).Interface().(state.SaverLoader)
		for i := range t.NumField() {
			learnSaved(t.Field(i).Type, known)
		}
	}
}
