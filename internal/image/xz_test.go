package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ulikunitz/xz"

	"ramet.dev/ramet/api"
)

// mixed is data that makes all kinds of LZMA2 chunks: random and repeated parts.
func mixed() []byte {
	random := make([]byte, 300<<10)
	rand.NewChaCha8([32]byte{}).Read(random)
	text := []byte(strings.Repeat("some text that repeats. ", 10_000))
	return bytes.Join([][]byte{text, random, text, make([]byte, 1<<20), random[:100_001]}, nil)
}

// readXZ returns the contents of a compressed stream, as imports read it.
func readXZ(r io.Reader) ([]byte, error) {
	b := newBuilder(context.Background(), nil, Options{}, nil)
	in, err := decompress(b.input(r), b.limits)
	if err != nil {
		return nil, err
	}
	defer in.close()
	out, err := io.ReadAll(in)
	return out, readError(err)
}

// TestReadsXZStreams reads streams of many shapes, cut into single bytes and large
// reads, and two streams in a row.
func TestReadsXZStreams(t *testing.T) {
	data := mixed()
	streams := map[string][]byte{}
	for what, check := range map[string]byte{"none": xz.None, "crc32": xz.CRC32, "crc64": xz.CRC64, "sha256": xz.SHA256} {
		var buf bytes.Buffer
		w, err := xz.WriterConfig{CheckSum: check, NoCheckSum: check == xz.None, BlockSize: 100_003}.NewWriter(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data[:500_000]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		streams[what] = buf.Bytes()
	}
	if tool, err := exec.LookPath("xz"); err == nil {
		for _, args := range [][]string{{"-1"}, {"-6"}, {"-T2", "--block-size=64KiB"}, {"-0", "--check=none"}} {
			cmd := exec.Command(tool, append(args, "-c")...)
			cmd.Stdin = bytes.NewReader(data)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			streams[strings.Join(args, " ")] = out
		}
	} else {
		t.Log("the streams of the xz tool are left out: it is not installed")
	}
	plain := map[string][]byte{}
	for what := range streams {
		plain[what] = data
		if !strings.HasPrefix(what, "-") {
			plain[what] = data[:500_000]
		}
	}
	streams["two"] = append(bytes.Clone(streams["crc32"]), streams["crc64"]...)
	plain["two"] = append(bytes.Clone(plain["crc32"]), plain["crc64"]...)
	for what, stream := range streams {
		t.Run(what, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
				if out, err := readXZ(r); err != nil || !bytes.Equal(out, plain[what]) {
					t.Fatalf("got %d of %d bytes, %v", len(out), len(plain[what]), err)
				}
			}
		})
	}
}

func TestXZRefusesLargeDictionaries(t *testing.T) {
	root := smallRoot(t)
	for _, c := range []struct {
		dict    int
		refused bool
	}{{64 << 20, false}, {maxWindow, false}, {maxWindow + 1, true}, {1 << 30, true}} {
		var buf bytes.Buffer
		w, err := xz.WriterConfig{DictCap: 1 << 16}.NewWriter(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(root); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		// The property byte of the filter follows the header's size and flags and
		// the filter's id and size. The header ends with its CRC.
		b := buf.Bytes()
		header := b[12 : 12+4*(int(b[12])+1)]
		if header[2] != 0x21 || header[3] != 1 {
			t.Fatalf("header is % x", header)
		}
		header[4] = dictByte(c.dict)
		sum := len(header) - crc32.Size
		binary.LittleEndian.PutUint32(header[sum:], crc32.ChecksumIEEE(header[:sum]))
		out, err := readXZ(bytes.NewReader(b))
		if got := api.CodeOf(err) == api.CodeHostile; got != c.refused || !c.refused && !bytes.Equal(out, root) {
			t.Errorf("dictionary of %d: %d bytes, %v", c.dict, len(out), err)
		}
	}
}

// xzDictionary decodes the property byte of LZMA2.
func xzDictionary(b byte) int64 {
	if b >= 40 {
		return 1<<32 - 1
	}
	return int64(2|b&1) << (b/2 + 11)
}

// dictByte returns the smallest property byte whose dictionary holds size.
func dictByte(size int) byte {
	b := byte(0)
	for xzDictionary(b) < int64(size) {
		b++
	}
	return b
}

func FuzzXZ(f *testing.F) {
	f.Add(compress(f, "xz", smallRoot(f)))
	f.Add([]byte("\xfd7zXZ\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := readXZ(bytes.NewReader(data)); err != nil && api.CodeOf(err) == api.CodeInternal {
			t.Fatalf("untyped error: %v", err)
		}
	})
}
