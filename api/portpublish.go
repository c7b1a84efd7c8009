package api

import (
	"net/netip"
	"strconv"
	"time"
)

// PublishRequest asks for a port of the host that leads to a TCP port of a sandbox.
type PublishRequest struct {
	Port     int    `json:"port" minimum:"1" maximum:"65535" doc:"TCP port in the sandbox"`
	Address  string `json:"address,omitempty" maxLength:"64" doc:"IP address of the host to listen on; 127.0.0.1 if absent. Only the owner of the daemon may name one that is not loopback"`
	HostPort int    `json:"host_port,omitempty" minimum:"0" maximum:"65535" doc:"TCP port of the host; a free one if 0 or absent. Only the owner of the daemon may name one below 1024"`
	Token    string `json:"token,omitempty" maxLength:"256" doc:"secret that requests must carry: 16 to 256 letters, digits and -._~+/=. The port speaks HTTP only then. No answer has it"`
}

// PublishedPort is a port of the host that leads to a TCP port of a sandbox.
type PublishedPort struct {
	Port        int        `json:"port" doc:"TCP port in the sandbox"`
	Address     string     `json:"address" doc:"IP address of the host"`
	HostPort    int        `json:"host_port" doc:"TCP port of the host"`
	Protected   bool       `json:"protected" doc:"requests must carry a token"`
	Connections int        `json:"connections" doc:"open connections"`
	Accepted    int64      `json:"accepted" doc:"connections that were accepted since the daemon started"`
	Refused     int64      `json:"refused" doc:"requests without the token since the daemon started"`
	LastUsedAt  *time.Time `json:"last_used_at,omitempty" doc:"when the last connection was accepted; absent if none was since the daemon started"`
	Error       string     `json:"error,omitempty" doc:"why the daemon does not listen at present; it tries again by itself"`
}

// Bounds of the token of a published port. A shorter token can be guessed.
const (
	minPublishToken = 16
	maxPublishToken = 256
)

// Valid returns a CodeInvalid error unless r can be carried out.
func (r *PublishRequest) Valid() error {
	switch {
	case r.Port < 1 || r.Port > 65535:
		return Invalid("port", "%d is not a port from 1 to 65535", r.Port)
	case r.HostPort < 0 || r.HostPort > 65535:
		return Invalid("host_port", "%d is not a port from 0 (any that is free) to 65535", r.HostPort)
	}
	if _, err := r.Listen(); err != nil {
		return err
	}
	if r.Token == "" {
		return nil
	}
	if len(r.Token) < minPublishToken || len(r.Token) > maxPublishToken {
		return Invalid("token", "it has %d characters, not %d to %d", len(r.Token), minPublishToken, maxPublishToken)
	}
	for i := range len(r.Token) {
		if !tokenByte(r.Token[i]) {
			return Invalid("token", "character %d is none of letters, digits and -._~+/=", i+1)
		}
	}
	return nil
}

// Listen returns the address of the host and its port.
func (r *PublishRequest) Listen() (netip.AddrPort, error) {
	if r.Address == "" {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(r.HostPort)), nil
	}
	a, err := netip.ParseAddr(r.Address)
	if err != nil {
		return netip.AddrPort{}, Invalid("address", "%q is not an IP address, such as 127.0.0.1 or ::1", r.Address)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(r.HostPort)), nil
}

// At returns the address and the port of the host, as in 127.0.0.1:8080 or [::1]:8080.
func (p *PublishedPort) At() string {
	a, err := netip.ParseAddr(p.Address)
	if err != nil {
		return p.Address + ":" + strconv.Itoa(p.HostPort)
	}
	return netip.AddrPortFrom(a, uint16(p.HostPort)).String()
}

// tokenByte reports whether b may be in a bearer token (RFC 6750, token68).
func tokenByte(b byte) bool {
	switch {
	case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		return true
	}
	switch b {
	case '-', '.', '_', '~', '+', '/', '=':
		return true
	}
	return false
}
