package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/process"
)

// caller is the process at the other end of a connection, as the kernel tells it.
type caller struct {
	credentials.CommonAuthInfo

	conn uint64 // number of the connection; one daemon never uses a number twice
	// lineage is the process and whom it descends from, as they were when it was accepted.
	// It is empty if that could not be told, as of a process that had ended before.
	lineage []process.ID
	// foreign says that it descends from this daemon through a session of processes that is
	// not the daemon's own, as agents do and nothing else.
	foreign bool
	// stray says that it descends from the shim of a session that is none of this daemon's,
	// and that this daemon does not descend from itself.
	stray bool
	// agent is the session that it was last found to belong to; nil: none.
	agent *atomic.Pointer[Agent]
}

// AuthType says how the peer was identified.
func (caller) AuthType() string { return "unix" }

// peerCredentials identifies peers by their socket, and refuses those of other users
// before a byte of theirs is read.
type peerCredentials struct{ last *atomic.Uint64 }

func newPeerCredentials() peerCredentials { return peerCredentials{last: new(atomic.Uint64)} }

// ServerHandshake asks the kernel who connected.
func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T is no unix socket", conn)
	}
	pid, uid, held, err := peerOf(unix)
	if err != nil {
		return nil, nil, fmt.Errorf("identify peer: %w", err)
	}
	if uid != os.Getuid() {
		err := fmt.Errorf("peer has uid %d, and this daemon is of uid %d", uid, os.Getuid())
		return nil, nil, errors.Join(err, held.release())
	}
	who := caller{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		conn:           c.last.Add(1), lineage: lineageOf(pid), agent: new(atomic.Pointer[Agent]),
	}
	_, who.foreign = process.Foreign(who.lineage)
	who.stray = stray(who.lineage)
	// The pid could have been another's by now.
	if held.reused() {
		who.lineage = nil
	}
	return conn, who, held.release()
}

// stray reports whether a process descends from a shim that this one does not descend from.
// A daemon that an agent has started serves that agent and what it started.
func stray(lineage []process.ID) bool {
	var above []process.ID
	for i, id := range lineage {
		if i == 0 || !agent.IsShim(id) {
			continue
		}
		if above == nil {
			above, _ = process.Ancestors(os.Getpid()) // none where that cannot be told
		}
		if !slices.Contains(above, id) {
			return true
		}
	}
	return false
}

// lineageOf returns the process with a pid and its ancestors; nothing where that cannot be
// told.
func lineageOf(pid int) []process.ID {
	id, err := process.Of(pid)
	if err != nil {
		return nil
	}
	above, err := process.Ancestors(pid)
	if err != nil {
		return nil
	}
	if now, err := process.Of(pid); err != nil || now != id {
		return nil
	}
	return append([]process.ID{id}, above...)
}

// ClientHandshake is for clients, which have credentials of their own.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, fmt.Errorf("these credentials are for the daemon only")
}

// Info describes the protocol.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

// Clone returns credentials that number connections together with these.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName does nothing: a socket has no name to check.
func (peerCredentials) OverrideServerName(string) error { return nil }

// callerOf returns the process that a call came from. It panics where there is none,
// which means that the server was built without peerCredentials.
func callerOf(ctx context.Context) caller {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(caller) //nolint:errcheck,forcetypeassert // see above
}
