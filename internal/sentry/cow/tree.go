package cow

import (
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/sentry/mm"
)

// visit calls fn for each segment of one of gVisor's generated sets (pkg/segment), in order, with
// its range and its value, which fn may change. T has the fields of the value. By reflection alone
// each segment would take a microsecond, and a browser has ten thousand.
func visit[T any](set reflect.Value, fn func(start, end uint64, value *T)) {
	root := set.FieldByName("root")
	t := root.Type()
	n := nodes{
		segments: offsetOf(t.FieldByName("nrSegments")), inner: offsetOf(t.FieldByName("hasChildren")),
		children: offsetOf(t.FieldByName("children")), keys: offsetOf(t.FieldByName("keys")), values: offsetOf(t.FieldByName("values")),
	}
	visitNode(unsafe.Pointer(root.UnsafeAddr()), &n, fn)
}

// nodes says where the nodes of a set have what.
type nodes struct{ segments, inner, children, keys, values uintptr }

func offsetOf(f reflect.StructField, _ bool) uintptr { return f.Offset }

func visitNode[T any](node unsafe.Pointer, n *nodes, fn func(start, end uint64, value *T)) {
	var value T
	count := uintptr(*(*int)(unsafe.Add(node, n.segments)))
	inner := *(*bool)(unsafe.Add(node, n.inner))
	for i := range count + 1 {
		if inner {
			visitNode(*(*unsafe.Pointer)(unsafe.Add(node, n.children+i*unsafe.Sizeof(node))), n, fn)
		}
		if i < count {
			key := (*[2]uint64)(unsafe.Add(node, n.keys+i*16))
			fn(key[0], key[1], (*T)(unsafe.Add(node, n.values+i*unsafe.Sizeof(value))))
		}
	}
}

// visitPieces and visitAreas visit the pages of a process and its mappings.
func visitPieces(m *mm.MemoryManager, fn func(start, end uint64, p *piece)) {
	visit(reflect.ValueOf(m).Elem().FieldByName("pmas"), fn)
}

func visitAreas(m *mm.MemoryManager, fn func(start, end uint64, a *area)) {
	visit(reflect.ValueOf(m).Elem().FieldByName("vmas"), fn)
}
