package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// notified is a notifier that runs a real program, which writes down its arguments.
type notified struct {
	*notifier
	db  *storage.DB
	out string // the arguments of all runs, a line each
}

func newNotified(t *testing.T, script string) *notified {
	t.Helper()
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	n := &notified{db: db, out: filepath.Join(dir, "out")}
	program := filepath.Join(dir, "notify me")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.happen(t, event.Event{Workspace: "ws_1", Kind: "session.failed", Handle: "s1"}) // before the daemon started
	logger := slog.New(slog.DiscardHandler)
	news, err := follow(t.Context(), db, event.New(db), []workspace.Workspace{{ID: "ws_1"}}, logger)
	if err != nil {
		t.Fatal(err)
	}
	n.notifier = &notifier{
		notifierConfig: notifierConfig{
			Command: []string{program, n.out, "Compozy"}, Secrets: redact.New("hunter2hunter2"),
			Name:   func(id string) (string, bool) { return strings.TrimPrefix(id, "ws_") + "st", id != "ws_gone" },
			Logger: logger, Every: time.Microsecond,
		},
		news: news,
	}
	done := make(chan struct{})
	go func() { n.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	return n
}

func (n *notified) happen(t *testing.T, events ...event.Event) {
	t.Helper()
	err := n.db.Do(t.Context(), func(tx *storage.Tx) error {
		for _, e := range events {
			if _, err := event.Append(tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// told waits until the program has run for the text that is the last one, and returns all.
func (n *notified) told(t *testing.T, last string) []string {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		data, err := os.ReadFile(n.out)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if strings.HasSuffix(string(data), last+"\n") {
			return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		}
		if time.Now().After(end) {
			t.Fatalf("got %q, want it to end with %q", data, last)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestAPersonIsToldOfQuestionsAndFailures(t *testing.T) {
	n := newNotified(t, `printf '%s|%s|%s\n' "$#" "$2" "$3" >> "$1"`)
	n.happen(t,
		event.Event{Workspace: "ws_1", Kind: "session.waiting", Handle: "s3", Data: `{"text":"Run $(touch pwned); \u001b[31mrm -rf ~\nnow \u202e\u009b2J hunter2hunter2"}`},
		event.Event{Workspace: "ws_1", Kind: "session.working", Handle: "s3"},
		event.Event{Workspace: "ws_gone", Kind: "session.failed", Handle: "s9"},
		event.Event{Workspace: "ws_1", Kind: "task.done", Handle: "t1"},
	)
	n.happen(t, event.Event{Workspace: "ws_2", Kind: "session.failed", Handle: "s4", Data: `{"reason":"it crashed"}`})
	got := n.told(t, "it crashed")
	want := []string{
		"3|Compozy|1st s3 asks: Run $(touch pwned); [31mrm -rf ~ now 2J [redacted]",
		"3|Compozy|2st s4 failed: it crashed",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestAFloodIsToldInAFewLines(t *testing.T) {
	n := newNotified(t, `printf '%s\n' "$3" >> "$1"`)
	var events []event.Event
	for i := range 500 {
		events = append(events, event.Event{Workspace: "ws_1", Kind: "session.lost", Handle: fmt.Sprint("s", i), Data: "{"})
	}
	n.happen(t, events...)
	got := n.told(t, "attention")
	want := []string{"1st s0 was lost", "1st s1 was lost", "1st s2 was lost", "1st s3 was lost", "496 more wait for you; see: compozy attention"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestAProgramThatFailsDoesNotEndTheTelling(t *testing.T) {
	n := newNotified(t, `printf '%s\n' "$3" >> "$1"; exit 3`)
	n.happen(t, event.Event{Workspace: "ws_1", Kind: "session.lost", Handle: "s1"})
	n.told(t, "s1 was lost")
	n.happen(t, event.Event{Workspace: "ws_1", Kind: "session.lost", Handle: "s2"})
	n.told(t, "s2 was lost")
}
