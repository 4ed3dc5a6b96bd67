package daemon_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/daemon/daemontest"
)

// strangerVariable makes this test program connect to the socket that it names.
const strangerVariable = "COMPOZY_TEST_STRANGER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(strangerVariable); socket != "" {
		os.Exit(knock(socket))
	}
	agenttest.Main(m)
}

// knock connects as a client does and returns 0 when the other end hangs up without a
// word, 1 when it answers, and 2 when it cannot be reached.
func knock(socket string) int {
	conn, err := new(net.Dialer).DialContext(context.Background(), "unix", socket)
	if err != nil {
		return 2
	}
	// How HTTP/2 begins, and settings without any. It may have hung up.
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return 0
	}
	return 1
}

func TestAnotherUserIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can act as another user")
	}
	home := daemontest.Start(t, daemontest.Options{})
	// Every other door is opened, so that only the daemon itself is left to refuse.
	for path, mode := range map[string]os.FileMode{
		home.Config.Home.Dir: 0o755, filepath.Dir(home.Config.Home.NewSocket()): 0o755, home.Config.Home.NewSocket(): 0o666,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[uint32]int{0: 1, 65534: 0} {
		cmd := exec.CommandContext(t.Context(), publicCopy(t))
		cmd.Env = append(os.Environ(), strangerVariable+"="+home.Config.Home.NewSocket())
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Dir = "/"
		err := cmd.Run()
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got, err = exit.ExitCode(), nil
		}
		if err != nil || got != want {
			t.Errorf("uid %d ended with %d, %v; want %d", uid, got, err, want)
		}
	}
}

// publicCopy returns a copy of this test program that every user can run.
func publicCopy(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "czpub") //nolint:usetesting // other users cannot enter a test's own directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "stranger")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, program, 0o755), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}
