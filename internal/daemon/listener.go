package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// listen makes the socket at path, in place of one that a dead daemon left. The
// caller holds ramet.lock, so no living one is lost.
func listen(path string, log *slog.Logger) (net.Listener, error) {
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("look for an old socket: %w", err)
	case fi.Mode().Type() != fs.ModeSocket:
		return nil, api.Errorf(api.CodeConflict, "%s is in the way: it is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("protect socket: %w", err)
	}
	return &ownListener{UnixListener: l, uid: uint32(os.Getuid()), log: log}, nil
}

// ownListener accepts connections of one user and root. The mode of the socket
// says the same, but a mode can be changed by accident.
type ownListener struct {
	*net.UnixListener
	uid uint32
	log *slog.Logger
}

// Accept implements net.Listener.
func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(conn)
		if err == nil && (uid == l.uid || uid == 0) {
			return conn, nil
		}
		l.log.Warn("connection refused: it is another user's", "uid", uid, "error", err)
		conn.Close()
	}
}

type peerKey struct{}

// withPeer notes in the context of a connection whose it is, if it came by the
// socket.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peerUID(local)
	if err != nil {
		return ctx // it is nobody's
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// whoConnected implements auth.Identify: the socket accepts nobody but the owner
// and root.
func whoConnected(r *http.Request) (access.Caller, bool) {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	return access.Owner(uid), ok
}

func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("get peer: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("get peer: %w", err)
	}
	if credErr != nil {
		return 0, fmt.Errorf("get peer: %w", credErr)
	}
	return cred.Uid, nil
}
