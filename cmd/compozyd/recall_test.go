package main_test

import (
	"fmt"
	"sync"
	"testing"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
)

// What was acknowledged before the daemon was killed is found afterwards by its last words
// and no longer by its first ones.
func TestKilledDaemonRecallsWhatItAcknowledged(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	ws := workspace(t, h)
	for round := range rounds(t, 2) {
		const writers, enough = 4, 40
		edited := make(chan string)
		var group sync.WaitGroup
		for writer := range writers {
			memories := memoryv1.NewMemoryServiceClient(operator(t, h))
			group.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("r%dw%dn%d", round, writer, n)
					stored, err := memories.Store(t.Context(), &memoryv1.StoreRequest{WorkspaceId: ws, Text: "before" + name})
					if err != nil {
						return
					}
					_, err = memories.Update(t.Context(), &memoryv1.UpdateRequest{WorkspaceId: ws, Id: stored.GetEntry().GetId(), Text: new("after" + name)})
					if err != nil {
						return
					}
					edited <- name
				}
			})
		}
		go func() {
			group.Wait()
			close(edited)
		}()
		var names []string
		for name := range edited {
			if names = append(names, name); len(names) == enough {
				if err := d.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d.ended(t); len(names) < enough {
			t.Fatalf("only %d entries were acknowledged", len(names))
		}
		d = serve(t, h)
		memories := memoryv1.NewMemoryServiceClient(operator(t, h))
		for _, name := range names {
			for word, want := range map[string]int{"before" + name: 0, "after" + name: 1} {
				found, err := memories.Recall(t.Context(), &memoryv1.RecallRequest{WorkspaceId: ws, Query: word})
				if err != nil {
					t.Fatal(err)
				}
				if got := len(found.GetHits()); got != want {
					t.Errorf("%s: %d entries, want %d", word, got, want)
				}
			}
		}
	}
	d.stop(t)
}
