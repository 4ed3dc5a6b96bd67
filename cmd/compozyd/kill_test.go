package main_test

import (
	"fmt"
	"sync"
	"testing"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// batch is how many tasks a writer creates in one call: all of them or none.
const batch = 3

func TestKillLosesNothingThatWasAcknowledged(t *testing.T) {
	for _, engine := range []storagetest.Engine{storagetest.SQLite, storagetest.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			h := newHome(t, storagetest.Config(t, engine).DSN)
			d := serve(t, h)
			ws := workspace(t, h)
			acknowledged := map[string]bool{}
			for round := range rounds(t, 5) {
				writeUntilKilled(t, h, d, ws, round, acknowledged)
				d = serve(t, h)
				checkTasks(t, h, ws, acknowledged)
			}
			d.stop(t)
		})
	}
}

// writeUntilKilled has 8 writers create tasks, kills the daemon in the middle of that, and
// adds the names of the batches that were acknowledged.
func writeUntilKilled(t *testing.T, h home, d *process, ws string, round int, acknowledged map[string]bool) {
	t.Helper()
	const writers, enough = 8, 60
	names := make(chan string)
	var group sync.WaitGroup
	for writer := range writers {
		conn := operator(t, h)
		group.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%d-%d-%d", round, writer, n)
				req := &taskv1.CreateRequest{WorkspaceId: ws}
				for i := range batch {
					req.Tasks = append(req.Tasks, &taskv1.Draft{Title: fmt.Sprintf("%s/%d", name, i), Body: "body of " + name, Labels: []string{"killed"}, Key: fmt.Sprintf("%s/%d", name, i)})
				}
				if _, err := taskv1.NewTaskServiceClient(conn).Create(t.Context(), req); err != nil {
					return // the daemon is gone
				}
				names <- name
			}
		})
	}
	go func() {
		group.Wait()
		close(names)
	}()
	count := 0
	for name := range names {
		acknowledged[name] = true
		if count++; count == enough {
			if err := d.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.ended(t)
	if count < enough {
		t.Fatalf("only %d calls were acknowledged", count)
	}
}

// checkTasks reports batches that were acknowledged and are not whole, and others of which
// only a part is there.
func checkTasks(t *testing.T, h home, ws string, acknowledged map[string]bool) {
	t.Helper()
	tasks := taskv1.NewTaskServiceClient(operator(t, h))
	limit := int32(200)
	found := map[string]int{}
	req := &taskv1.ListRequest{WorkspaceId: ws, Limit: &limit}
	for {
		page, err := tasks.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.GetTasks() {
			var round, writer, n, i int
			if _, err := fmt.Sscanf(task.GetTitle(), "%d-%d-%d/%d", &round, &writer, &n, &i); err != nil || task.GetKey() != task.GetTitle() || len(task.GetLabels()) != 1 {
				t.Errorf("a task is not what was written: %v", task)
			}
			found[fmt.Sprintf("%d-%d-%d", round, writer, n)]++
		}
		if req.Cursor = page.GetNextCursor(); req.Cursor == "" {
			break
		}
	}
	for name := range acknowledged {
		if found[name] != batch {
			t.Errorf("batch %s was acknowledged and has %d of %d tasks", name, found[name], batch)
		}
	}
	for name, n := range found {
		if n != batch {
			t.Errorf("batch %s is there with %d of %d tasks", name, n, batch)
		}
	}
	for name := range acknowledged {
		whole, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: name + "/0"})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := whole.GetBody(), "body of "+name; got != want {
			t.Errorf("task %s has body %q, want %q", name, got, want)
		}
		break // one is as good as another
	}
}
