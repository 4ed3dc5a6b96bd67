package loopback_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/loopback"
)

func TestListenTakesLoopbackAddressesAlone(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{ // what the error says; empty: none
		"127.0.0.1:0":              "",
		"127.0.0.2:0":              "",
		"localhost:0":              "",
		"LOCALHOST:0":              "",
		"[::ffff:127.0.0.1]:0":     "",
		":0":                       "without a host the whole network could connect; write 127.0.0.1:0",
		":3210":                    "write 127.0.0.1:3210",
		"0.0.0.0:0":                "other machines can reach 0.0.0.0",
		"[::]:0":                   "other machines can reach ::",
		"[::ffff:192.168.1.5]:1":   "other machines can reach",
		"192.168.1.5:80":           "other machines can reach 192.168.1.5",
		"nowhere.invalid:0":        "the name has no address here",
		"3210":                     "an address is a host and a port",
		"127.0.0.1":                "an address is a host and a port",
		"":                         "an address is a host and a port",
		"127.0.0.1:99999":          "the port is a number from 0 to 65535",
		"127.0.0.1:http":           "the port is a number from 0 to 65535",
		"127.0.0.1:-1":             "the port is a number from 0 to 65535",
		"http://127.0.0.1:3210":    "an address is a host and a port",
		strings.Repeat("x", 9_000): "an address is a host and a port",
	} {
		listeners, err := loopback.Listen(t.Context(), address)
		if want == "" && err != nil || want != "" && (fault.Of(err) != fault.InvalidArgument || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", address, err)
		}
		port := ""
		for _, l := range listeners {
			addr := netip.MustParseAddrPort(l.Addr().String())
			if !addr.Addr().IsLoopback() || port != "" && port != l.Addr().String()[strings.LastIndex(l.Addr().String(), ":"):] {
				t.Errorf("%q listens on %v", address, l.Addr())
			}
			port = l.Addr().String()[strings.LastIndex(l.Addr().String(), ":"):]
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Whichever family a client takes for "localhost", it finds the relay.
func TestLocalhostIsListenedOnInEachFamilyOfTheMachine(t *testing.T) {
	t.Parallel()
	families := 1
	if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0"); err == nil {
		families++
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	listeners, err := loopback.Listen(t.Context(), "localhost:0")
	if err != nil || len(listeners) != families {
		t.Fatalf("%d listeners, %v; want %d", len(listeners), err, families)
	}
	for _, l := range listeners {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPortThatIsTakenIsSaidToBe(t *testing.T) {
	t.Parallel()
	first, err := loopback.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first[0].Close() })
	address := first[0].Addr().String()
	for _, address := range []string{address, strings.Replace(address, "127.0.0.1", "localhost", 1)} {
		listeners, err := loopback.Listen(t.Context(), address)
		if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), address+" is already in use") || listeners != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}
