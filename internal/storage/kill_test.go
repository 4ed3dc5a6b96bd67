package storage_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// The tests of this file run the test binary again, as a child that they can kill.
const (
	childVariable  = "COMPOZY_TEST_CHILD"  // what the child does
	roundsVariable = "COMPOZY_SOAK_ROUNDS" // how often a child is killed; default 5
)

func TestMain(m *testing.M) {
	if do := os.Getenv(childVariable); do != "" {
		cfg := storage.Config{Dir: os.Args[1], DSN: os.Args[2], Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		if err := child(do, cfg, os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child works until it is killed, and tells on stdout what was acknowledged.
func child(do string, cfg storage.Config, args []string) error {
	ctx := context.Background()
	if do == "restore" {
		for i := 0; ; i++ {
			if _, err := storage.Restore(ctx, cfg, args[i%len(args)]); err != nil {
				return err
			}
			os.Stdout.WriteString("restored\n")
		}
	}
	db, err := storage.Open(ctx, cfg)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for writer := range 8 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s.%d.%d", args[0], writer, i)
				if err := db.Do(ctx, func(tx *storage.Tx) error { return writePair(tx, name) }); err != nil {
					failed <- err
				}
				os.Stdout.WriteString(name + "\n") // one write, so lines do not mix
			}
		}()
	}
	return <-failed
}

// writePair writes two rows that must not be there one without the other.
func writePair(tx *storage.Tx, name string) error {
	if err := set(tx, "a "+name, ""); err != nil {
		return err
	}
	return set(tx, "b "+name, "")
}

// readPairs returns the names of the pairs and fails the test if one is not whole.
func readPairs(t *testing.T, db *storage.DB) []string {
	t.Helper()
	seen := map[string]string{}
	for _, s := range settings(t, db) {
		half, name, _ := strings.Cut(strings.TrimSuffix(s, "="), " ")
		seen[name] += half
	}
	for name, halves := range seen {
		if halves != "ab" {
			t.Errorf("of pair %s only %s is there", name, halves)
		}
	}
	return slices.Collect(maps.Keys(seen))
}

// killed runs a child and kills it a moment after it has told that many lines. It
// returns all lines that the child told.
func killed(t *testing.T, lines int, do string, cfg storage.Config, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{cfg.Dir, cfg.DSN}, args...)...)
	cmd.Env = append(os.Environ(), childVariable+"="+do)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told []string
	var killer *time.Timer
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		told = append(told, scanner.Text())
		if len(told) == lines {
			killer = time.AfterFunc(rand.N(20*time.Millisecond), func() { cmd.Process.Kill() })
		}
	}
	if killer == nil {
		t.Fatalf("the child ended by itself after %d lines: %v: %s", len(told), cmd.Wait(), stderr.String())
	}
	_ = cmd.Wait() // it was killed
	return told
}

func rounds(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(roundsVariable))
	if err != nil {
		return 5
	}
	return n
}

func TestKillLosesNothingThatWasAcknowledged(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		want := map[string]bool{}
		for round := range rounds(t) {
			for _, name := range killed(t, 1+rand.N(200), "write", cfg, fmt.Sprint(round)) {
				want[name] = true
			}
		}
		db := reopen(t, cfg)
		for _, name := range readPairs(t, db) {
			delete(want, name)
		}
		if len(want) != 0 {
			t.Errorf("%d acknowledged changes are lost: %v", len(want), slices.Collect(maps.Keys(want)))
		}
	})
}

func TestKillInARestoreLeavesTheOldOrTheNew(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		const rows = 300
		var backups []string
		db := reopen(t, cfg)
		for _, generation := range []string{"old", "new"} {
			err := db.Do(t.Context(), func(tx *storage.Tx) error {
				if _, err := tx.Exec(`DELETE FROM setting`); err != nil {
					return err
				}
				for i := range rows {
					if err := set(tx, fmt.Sprint(i), generation); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			backups = append(backups, backedUp(t, db))
		}
		closed(t, db)
		for range rounds(t) {
			killed(t, 1+rand.N(3), "restore", cfg, backups...)
			db := reopen(t, cfg)
			count := map[string]int{}
			for _, s := range settings(t, db) {
				_, generation, _ := strings.Cut(s, "=")
				count[generation]++
			}
			if count["old"]+count["new"] != rows || len(count) != 1 {
				t.Errorf("got rows %v, want %d of one generation", count, rows)
			}
			closed(t, db)
		}
	})
}
