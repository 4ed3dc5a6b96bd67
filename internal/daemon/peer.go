package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// process is the process at the other end of a connection, as the kernel tells it.
type process struct {
	credentials.CommonAuthInfo

	pid  int
	uid  int
	conn uint64 // number of the connection; one daemon never uses a number twice
}

// AuthType says how the peer was identified.
func (process) AuthType() string { return "unix" }

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
	pid, uid, err := peerOf(unix)
	if err != nil {
		return nil, nil, fmt.Errorf("identify peer: %w", err)
	}
	if uid != os.Getuid() {
		return nil, nil, fmt.Errorf("peer has uid %d, and this daemon is of uid %d", uid, os.Getuid())
	}
	return conn, process{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		pid:            pid, uid: uid, conn: c.last.Add(1),
	}, nil
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

// processOf returns the process that a call came from. It panics where there is none,
// which means that the server was built without peerCredentials.
func processOf(ctx context.Context) process {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(process) //nolint:errcheck,forcetypeassert // see above
}
