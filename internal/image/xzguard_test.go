package image

import (
	"bytes"
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

// TestXZGuardFollowsStreams reads streams of many shapes, cut into single bytes
// and large reads: the guard must find the index where it is.
func TestXZGuardFollowsStreams(t *testing.T) {
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
	for what, stream := range streams {
		t.Run(what, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
				g := &xzGuard{r: r, max: maxWindow}
				out, err := io.ReadAll(g)
				if err != nil || !bytes.Equal(out, stream) || !g.done {
					t.Fatalf("got %d of %d bytes, %v, index found: %v", len(out), len(stream), err, g.done)
				}
			}
		})
	}
}

func TestXZGuardRefusesLargeDictionaries(t *testing.T) {
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
		// the filter's id and size. Its CRC does not matter: the guard comes first.
		b := buf.Bytes()
		if b[14] != 0x21 || b[15] != 1 {
			t.Fatalf("header is % x", b[12:24])
		}
		b[16] = dictByte(c.dict)
		_, err = io.ReadAll(&xzGuard{r: bytes.NewReader(b), max: maxWindow})
		if got := api.CodeOf(err) == api.CodeHostile; got != c.refused {
			t.Errorf("dictionary of %d: %v", c.dict, err)
		}
	}
	if max := xzDictionary(40); max != 1<<32-1 {
		t.Errorf("largest dictionary: %d", max)
	}
}

// dictByte returns the smallest property byte whose dictionary holds size.
func dictByte(size int) byte {
	b := byte(0)
	for xzDictionary(b) < int64(size) {
		b++
	}
	return b
}

func FuzzXZGuard(f *testing.F) {
	f.Add(compress(f, "xz", smallRoot(f)))
	f.Add([]byte("\xfd7zXZ\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &xzGuard{r: bytes.NewReader(data), max: maxWindow}
		out, err := io.ReadAll(g)
		if err == nil && !bytes.Equal(out, data) {
			t.Fatal("data changed on the way")
		}
		if err != nil && api.CodeOf(err) == api.CodeInternal {
			t.Fatalf("untyped error: %v", err)
		}
	})
}
