package stock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	// ServerAddress and guestAddress are the addresses of both ends of the link, in a range for documentation.
	ServerAddress, guestAddress, bits = "192.0.2.1", "192.0.2.2", "/30"

	// closeTimeout bounds the removal of a link.
	closeTimeout = 30 * time.Second
)

// Link is a pair of network namespaces, with virtual interfaces between them and no way out: the
// firewall of the host has no say there, and no packet leaves.
type Link struct {
	server, guest string // names
}

// Server returns the path of the namespace of the server.
func (l Link) Server() string { return netnsPath(l.server) }

// Guest returns the path of the namespace of the container.
func (l Link) Guest() string { return netnsPath(l.guest) }

func netnsPath(name string) string { return "/run/netns/" + name }

// NewLink makes the namespaces and the link. The caller closes it also after an error.
func NewLink(ctx context.Context) (Link, error) {
	name := fmt.Sprintf("ramet-bench-%d-", os.Getpid())
	l := Link{name + "server", name + "guest"}
	for _, command := range []string{
		"netns add " + l.server,
		"netns add " + l.guest,
		"-n " + l.server + " link add eth0 type veth peer name eth0 netns " + l.guest,
		"-n " + l.server + " addr add " + ServerAddress + bits + " dev eth0",
		"-n " + l.server + " link set eth0 up",
		"-n " + l.guest + " link set lo up",
		"-n " + l.guest + " addr add " + guestAddress + bits + " dev eth0",
		"-n " + l.guest + " link set eth0 up",
		"-n " + l.guest + " route add default via " + ServerAddress,
	} {
		if err := ip(ctx, command); err != nil {
			return l, err
		}
	}
	return l, nil
}

// Close removes what there is of the link, also when ctx has ended.
func (l Link) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var errs []error
	for _, name := range []string{l.guest, l.server} {
		if _, err := os.Stat(netnsPath(name)); err == nil {
			errs = append(errs, ip(ctx, "netns del "+name))
		}
	}
	return errors.Join(errs...)
}

func ip(ctx context.Context, command string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}
