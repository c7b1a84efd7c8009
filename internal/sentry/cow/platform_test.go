package cow

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// fullPlatform is a platform whose host gives it nothing more.
type fullPlatform struct{ idlePlatform }

func (fullPlatform) NewAddressSpace() (platform.AddressSpace, error) { return nil, unix.ENOMEM }

// TestRefusedAddressSpace checks that the kernel gets an errno that a guest's fork may
// return, and that the reason is kept for a load, which ends with a text.
func TestRefusedAddressSpace(t *testing.T) {
	p := NewPlatform(idlePlatform{}, &Memory{})
	if _, err := p.NewAddressSpace(); err != nil || p.Refused() != nil {
		t.Errorf("with room: %v, and %v was refused", err, p.Refused())
	}
	p = NewPlatform(fullPlatform{}, &Memory{})
	if _, err := p.NewAddressSpace(); !linuxerr.Equals(linuxerr.EAGAIN, err) || !errors.Is(p.Refused(), unix.ENOMEM) {
		t.Errorf("without: %v, and %v was refused", err, p.Refused())
	}
}
