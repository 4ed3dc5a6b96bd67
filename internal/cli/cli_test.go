package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/cli"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/daemon"
)

// TestMain makes both programs available to the scripts, and the scripted agent to the
// daemon.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{agenttest.Shim()[1], agenttest.Command()[1]}, os.Args[1]) {
		agenttest.Main(m)
	}
	testscript.Main(m, map[string]func(){
		"compozy":  compozy,
		"compozyd": compozyd,
	})
}

func compozy() {
	directory, _ := os.Getwd()
	os.Exit(cli.Main(cli.Process{
		Args: os.Args, In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Lookup: os.LookupEnv, Directory: directory,
	}))
}

func compozyd() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	cfg, err := config.Load(os.LookupEnv)
	switch {
	case err != nil:
	case os.Args[1] == "restore":
		var kept string
		if kept, err = daemon.Restore(ctx, cfg, os.Args[2]); err == nil {
			fmt.Printf("Restored the database from %s; what was there is kept as %s.\n", os.Args[2], kept)
		}
	default:
		err = daemon.Run(ctx, cfg, daemon.Options{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compozyd:", err)
		os.Exit(1)
	}
}

// TestScripts runs each script with a home of its own, and ends the daemon that it leaves.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			home := config.Home{Dir: filepath.Join(t.TempDir(), "home")} // a script's own directory is too long for a socket
			e.Setenv(config.HomeVariable, home.Dir)
			user := filepath.Join(e.WorkDir, "user") // a workspace is no home
			e.Setenv("HOME", user)
			if err := os.Mkdir(user, 0o700); err != nil {
				return err
			}
			e.Setenv("TZ", "UTC")
			scripted, err := json.Marshal(agenttest.Command())
			if err != nil {
				return err
			}
			e.Setenv("SCRIPTED_AGENT", string(scripted))
			e.Setenv("GORACE", "atexit_sleep_ms=0") // the detector would make every command take a second
			e.Defer(func() {
				if err := kill(home); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// exits N COMMAND... runs a command that must end with the code N.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code := 0
				var exit *exec.ExitError
				switch err := ts.Exec(args[1], args[2:]...); {
				case errors.As(err, &exit):
					code = exit.ExitCode()
				case err != nil:
					ts.Fatalf("%v", err)
				}
				if strconv.Itoa(code) != args[0] {
					ts.Fatalf("got exit code %d, want %s", code, args[0])
				}
			},
			// settings FILE makes a file the home's settings, with variables in it replaced.
			"settings": func(ts *testscript.TestScript, _ bool, args []string) {
				home := config.Home{Dir: ts.Getenv(config.HomeVariable)}
				ts.Check(os.MkdirAll(home.Dir, 0o700))
				ts.Check(os.WriteFile(home.Settings(), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
			},
			// appears PATTERN FILE waits until a file, which need not be there yet, has what
			// the pattern matches.
			"appears": func(ts *testscript.TestScript, _ bool, args []string) {
				pattern, path := regexp.MustCompile("(?m)"+args[0]), ts.MkAbs(args[1])
				for end := time.Now().Add(time.Minute); ; {
					data, err := os.ReadFile(path)
					switch {
					case err == nil && pattern.Match(data):
						return
					case err != nil && !errors.Is(err, os.ErrNotExist), time.Now().After(end):
						ts.Fatalf("%q does not appear in %s: %v\n%s", args[0], args[1], err, data)
					}
					<-time.After(10 * time.Millisecond)
				}
			},
			// killdaemon kills the home's daemon and returns when it is gone.
			"killdaemon": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(kill(config.Home{Dir: ts.Getenv(config.HomeVariable)}))
			},
		},
	})
}

// kill kills the daemon of a home, if one runs, and waits for its end.
func kill(home config.Home) (err error) {
	lock, err := os.Open(home.Lock())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	held := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if held == nil {
		return nil
	}
	data, err := io.ReadAll(lock)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}
	return unix.Flock(int(lock.Fd()), unix.LOCK_SH) // the lock ends with the process
}
