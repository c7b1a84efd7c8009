package birth

import (
	"bufio"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/rand"
)

// TestCanaryForgetRandom checks that no random bytes are left that were read ahead.
func TestCanaryForgetRandom(t *testing.T) {
	for ahead := range 3 {
		if _, err := rand.Read(make([]byte, 1+ahead*4000)); err != nil {
			t.Fatal(err)
		}
		if err := ForgetRandom(); err != nil {
			t.Fatal(err)
		}
		buffer := reflect.ValueOf(rand.Reader).Elem().FieldByName("r")
		if buffer.Type() != reflect.TypeFor[*bufio.Reader]() {
			t.Fatalf("gVisor's random source reads ahead into a %v", buffer.Type())
		}
		read, written := buffer.Elem().FieldByName("r").Int(), buffer.Elem().FieldByName("w").Int()
		if read != written {
			t.Errorf("%d bytes are left", written-read)
		}
	}
}
