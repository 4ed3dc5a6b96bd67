package main_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
)

// answers returns once a daemon answers, which may be still starting.
func answers(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := daemonv1.NewDaemonServiceClient(conn).Status(ctx, &daemonv1.StatusRequest{}, grpc.WaitForReady(true))
	return err
}

func TestRaceOfTwoDaemonsHasOneWinner(t *testing.T) {
	h := newHome(t, "")
	for range rounds(t, 10) {
		a, b := daemon(t, h), daemon(t, h)
		winner, loser := a, b
		select {
		case <-a.done:
			winner, loser = b, a
		case <-b.done:
		case <-time.After(deadline):
			t.Fatal("both daemons live")
		}
		select {
		case <-winner.serving:
		case <-winner.done:
			t.Fatalf("both daemons ended:\n%s%s", a.stderr.String(), b.stderr.String())
		case <-time.After(deadline):
			t.Fatal("the winner does not serve")
		}
		if code := loser.ended(t); code != 1 || !strings.Contains(loser.stderr.String(), "a daemon already runs for "+h.Dir) {
			t.Errorf("the loser ended with %d:\n%s", code, loser.stderr.String())
		}
		if err := answers(t.Context(), operator(t, h)); err != nil {
			t.Errorf("the winner does not answer: %v", err)
		}
		winner.stop(t)
	}
}

func TestASecondDaemonNamesTheFirst(t *testing.T) {
	h := newHome(t, "")
	first := serve(t, h)
	refused := func() {
		t.Helper()
		second := daemon(t, h)
		if code, want := second.ended(t), "pid "+strconv.Itoa(first.Process.Pid); code != 1 || !strings.Contains(second.stderr.String(), want) {
			t.Errorf("the second ended with %d and does not say %q:\n%s", code, want, second.stderr.String())
		}
	}
	refused()
	// One that hangs is not one that is gone.
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := first.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := answers(t.Context(), operator(t, h)); err != nil {
		t.Errorf("the first does not answer: %v", err)
	}
	first.stop(t)
}

func TestWhoeverAsksForTheDaemonDoesNotKeepItFromStarting(t *testing.T) {
	h := newHome(t, "")
	serve(t, h).stop(t) // makes the lock
	asking, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asking)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := h.Held(); err != nil {
				t.Errorf("ask: %v", err)
			}
		}
	}()
	for range rounds(t, 5) {
		d := serve(t, h)
		if held, err := h.Held(); err != nil || !held {
			t.Errorf("a daemon runs: held %t, %v", held, err)
		}
		d.stop(t)
		if held, err := h.Held(); err != nil || held {
			t.Errorf("no daemon runs: held %t, %v", held, err)
		}
	}
	close(stop)
	<-asking
}

func TestKilledDaemonLeavesNothingInTheWay(t *testing.T) {
	h := newHome(t, "")
	for range rounds(t, 3) {
		serve(t, h).kill(t)
		if info, err := os.Lstat(h.NewSocket()); err != nil || info.Mode().Type() != fs.ModeSocket {
			t.Fatalf("the socket is not left behind, which this test is about: %v, %v", info, err)
		}
	}
	d := serve(t, h)
	if err := answers(t.Context(), operator(t, h)); err != nil {
		t.Error(err)
	}
	d.stop(t)
	if _, err := os.Lstat(h.NewSocket()); !os.IsNotExist(err) {
		t.Errorf("a daemon that was stopped left its socket: %v", err)
	}
}

func TestWhatIsInTheWayOfTheSocketStays(t *testing.T) {
	for name, put := range map[string]func(path, other string) error{
		"file":    func(path, _ string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"symlink": func(path, other string) error { return os.Symlink(other, path) },
		"dangling symlink": func(path, other string) error {
			return os.Symlink(other+".none", path)
		},
		"directory": func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, "")
			if err := h.Prepare(); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(t.TempDir(), "other")
			if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := put(h.NewSocket(), other); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(h.NewSocket())
			if err != nil {
				t.Fatal(err)
			}
			d := daemon(t, h)
			if code := d.ended(t); code != 1 || !strings.Contains(d.stderr.String(), h.NewSocket()+" is in the way") {
				t.Errorf("the daemon ended with %d:\n%s", code, d.stderr.String())
			}
			after, err := os.Lstat(h.NewSocket())
			if err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
				t.Errorf("what was in the way changed: %v, %v", after, err)
			}
			if data, err := os.ReadFile(other); err != nil || string(data) != "precious" {
				t.Errorf("the file behind the link changed: %q, %v", data, err)
			}
		})
	}
}

func TestNobodyElseCanReadTheHomeWhateverTheUmask(t *testing.T) {
	h := newHome(t, "")
	d := launch(t, h, "/bin/sh", "-c", "umask 0; exec compozyd run")
	select {
	case <-d.serving:
	case <-d.done:
		t.Fatalf("the daemon ended: %v\n%s", d.err, d.stderr.String())
	}
	workspace(t, h)
	err := filepath.WalkDir(h.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %04o", path, mode)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{h.NewSocket(): "-rw-------", h.Dir: "drwx------", filepath.Dir(h.NewSocket()): "drwx------"} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint((info.Mode() &^ fs.ModeSocket).String()); got != want {
			t.Errorf("%s has mode %s, want %s", path, got, want)
		}
	}
	d.stop(t)
}

func TestALongHomeIsServedFromAShortSocket(t *testing.T) {
	short := newHome(t, "").Dir
	t.Setenv("TMPDIR", short)
	h := newHome(t, "")
	h.Dir = filepath.Join(h.Dir, strings.Repeat("long", 25))
	h.env = append(h.env, "COMPOZY_HOME="+h.Dir)
	directory := filepath.Dir(h.NewSocket())
	if filepath.Dir(directory) != short {
		t.Fatalf("the socket would be %s", h.NewSocket())
	}
	// Whoever made that directory first must not be able to put a socket there.
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	d := daemon(t, h)
	if code := d.ended(t); code != 1 || !strings.Contains(d.stderr.String(), directory+" is open to other users") {
		t.Errorf("the daemon ended with %d:\n%s", code, d.stderr.String())
	}
	if err := os.Chmod(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	d = serve(t, h)
	if info, err := h.Info(); err != nil || info.Socket != h.NewSocket() || info.PID != d.Process.Pid {
		t.Errorf("recorded as %+v, %v", info, err)
	}
	if err := answers(t.Context(), operator(t, h)); err != nil {
		t.Error(err)
	}
	d.stop(t)
}

func TestOpenHomeIsRefused(t *testing.T) {
	h := newHome(t, "")
	if err := os.Chmod(h.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := daemon(t, h)
	if code := d.ended(t); code != 1 || !strings.Contains(d.stderr.String(), "chmod 700 "+h.Dir) {
		t.Errorf("the daemon ended with %d:\n%s", code, d.stderr.String())
	}
}

func TestWrongCommandLineIsExplained(t *testing.T) {
	h := newHome(t, "")
	for _, args := range [][]string{nil, {"serve"}, {"run", "now"}, {"restore"}} {
		d := launch(t, h, "compozyd", args...)
		if code := d.ended(t); code != 1 || !strings.Contains(d.stderr.String(), "usage: compozyd run") {
			t.Errorf("compozyd %q ended with %d:\n%s", args, code, d.stderr.String())
		}
	}
}
