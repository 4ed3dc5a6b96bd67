package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"compozy.dev/compozy/internal/fault"
)

// portTries is how often another free port is tried where the first is not free for all
// addresses.
const portTries = 10

// Listen listens on an address such as "127.0.0.1:3210", "[::1]:0" or "localhost:3210". A
// name stands for all its addresses; "localhost" for that of each family that the machine
// has. Port 0 takes a free one, the same for all of them. An address that is not loopback,
// or a name that has one, is refused.
func Listen(ctx context.Context, address string) ([]net.Listener, error) {
	addresses, port, err := parse(ctx, address)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		listeners, err := listen(ctx, addresses, port)
		switch {
		case err == nil:
			return listeners, nil
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, fault.New(fault.Unavailable, "cannot listen on %s: %v", address, err)
		case port != 0:
			return nil, fault.New(fault.Conflict, "%s is already in use; take another port, or port 0 for one that is free", address)
		case try == portTries:
			return nil, fault.New(fault.Unavailable, "no port is free for all addresses of %s; take 127.0.0.1:0", address)
		}
	}
}

// parse returns the addresses, of which there is at least one, and the port.
func parse(ctx context.Context, address string) ([]netip.Addr, uint16, error) {
	bad := func(format string, args ...any) error {
		return fault.New(fault.InvalidArgument, "cannot listen on %.100q: "+format, append([]any{address}, args...)...)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, bad("an address is a host and a port, such as 127.0.0.1:3210")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, bad("the port is a number from 0 to 65535")
	}
	var addresses []netip.Addr
	if host == "" {
		return nil, 0, bad("without a host the whole network could connect; write 127.0.0.1:%d", port)
	} else if addr, err := netip.ParseAddr(host); err == nil {
		addresses = []netip.Addr{addr}
	} else if strings.EqualFold(host, "localhost") {
		addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	} else if addresses, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil || len(addresses) == 0 {
		return nil, 0, bad("the name has no address here; write 127.0.0.1:%d", port)
	}
	for i, addr := range addresses {
		if addresses[i] = addr.Unmap(); !addresses[i].IsLoopback() {
			return nil, 0, bad("other machines can reach %s; write 127.0.0.1:%d", addr, port)
		}
	}
	return addresses, uint16(port), nil
}

// listen listens on all addresses, but for those of a family that the machine does not have
// where it has another.
func listen(ctx context.Context, addresses []netip.Addr, port uint16) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			listeners = nil
		}
	}()
	var missing error
	for _, addr := range addresses {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(addr, port).String())
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT):
			missing = err
			continue
		case err != nil:
			return listeners, err
		}
		listeners = append(listeners, l)
		if port == 0 {
			port = portOf(l)
		}
	}
	if len(listeners) == 0 {
		return nil, fmt.Errorf("this machine does not have the address: %w", missing)
	}
	return listeners, nil
}

// portOf returns the port that a listener of this package has.
func portOf(l net.Listener) uint16 {
	addr, _ := netip.ParseAddrPort(l.Addr().String())
	return addr.Port()
}
