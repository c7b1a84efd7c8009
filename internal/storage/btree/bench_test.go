package btree

import (
	"encoding/binary"
	"fmt"
	"testing"

	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// benchTree has n keys like those of inodes and extents: 16 bytes, with values of
// 32.
func benchTree(b *testing.B, n int) (*Tree, func(i int) []byte) {
	s := pagestest.Store(b, 1, nil)
	t := OpenTree(s, 0)
	var k [16]byte
	key := func(i int) []byte {
		binary.BigEndian.PutUint64(k[:], uint64(i)*0x9e3779b97f4a7c15)
		return k[:]
	}
	val := make([]byte, 32)
	for i := range n {
		if err := t.Put(key(i), val); err != nil {
			b.Fatal(err)
		}
	}
	return t, key
}

const benchKeys = 100000

func BenchmarkGet(b *testing.B) {
	t, key := benchTree(b, benchKeys)
	for i := 0; b.Loop(); i++ {
		if _, ok, err := t.Get(key(i % benchKeys)); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkFloor(b *testing.B) {
	t, key := benchTree(b, benchKeys)
	for i := 0; b.Loop(); i++ {
		if _, _, ok, err := t.Floor(key(i % benchKeys)); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkPutInPlace(b *testing.B) {
	t, key := benchTree(b, benchKeys)
	val := make([]byte, 32)
	for i := 0; b.Loop(); i++ {
		if err := t.Put(key(i%benchKeys), val); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutNew(b *testing.B) {
	t, key := benchTree(b, 0)
	val := make([]byte, 32)
	for i := 0; b.Loop(); i++ {
		if err := t.Put(key(i), val); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutInOrder(b *testing.B) {
	t, _ := benchTree(b, 0)
	val := make([]byte, 32)
	var k [8]byte
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint64(k[:], uint64(i))
		if err := t.Put(k[:], val); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPutAfterPin is the first change of a leaf after a fork.
func BenchmarkPutAfterPin(b *testing.B) {
	t, key := benchTree(b, benchKeys)
	val := make([]byte, 32)
	for i := 0; b.Loop(); i++ {
		t.s.Release(fmt.Sprint(i - 1))
		if err := t.s.Pin(fmt.Sprint(i)); err != nil {
			b.Fatal(err)
		}
		val[0]++
		if err := t.Put(key(i%benchKeys), val); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDeleteAndPut(b *testing.B) {
	t, key := benchTree(b, benchKeys)
	val := make([]byte, 32)
	for i := 0; b.Loop(); i++ {
		if ok, err := t.Delete(key(i % benchKeys)); err != nil || !ok {
			b.Fatal(ok, err)
		}
		if err := t.Put(key(i%benchKeys), val); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan is per key.
func BenchmarkScan(b *testing.B) {
	t, _ := benchTree(b, benchKeys)
	for n := 0; n < b.N; {
		if err := t.Scan(nil, func(_, _ []byte) bool { n++; return n < b.N }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllocFree(b *testing.B) {
	s := pagestest.Store(b, 1, nil)
	for b.Loop() {
		p, n, err := s.Alloc(4)
		if err != nil {
			b.Fatal(err)
		}
		s.Free(p, n, s.Epoch())
	}
}
