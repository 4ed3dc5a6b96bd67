package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

const (
	// What is called. A page of this many rows is the longest that is claimed about.
	rows      = 50
	getTask   = "compozy_host__tasks__get"
	listTasks = "compozy_host__tasks__list"

	// idleAfter is how long after its last answer a process is taken to be idle.
	idleAfter = 100 * time.Millisecond
)

// relay measures what a relay adds: to a call, at its start, in memory.
//
// The floors read no database. What of a call is the daemon's work is told from what is the
// relay's by a second relay, whose daemon is a host that gives the same answers from files.
func (b *bench) relay(ctx context.Context, t *table) (err error) {
	l, err := b.newLab(ctx, "lab", 1000)
	defer func() { err = errors.Join(err, l.close()) }()
	if err != nil {
		return err
	}
	answers, err := b.record(ctx, l)
	if err != nil {
		return err
	}
	standIn := &lab{home: filepath.Join(b.dir, "stand-in"), workspace: l.workspace}
	if err := os.MkdirAll(filepath.Dir(standIn.socket()), 0o700); err != nil {
		return err
	}
	host, err := b.startFloor(ctx, "host", standIn.socket(), answers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.stop()) }()

	whole, tools, _, err := b.connectRelay(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, whole.stop()) }()
	names, err := toolNames(tools)
	if err != nil {
		return err
	}
	alone, _, _, err := b.connectRelay(ctx, standIn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alone.stop()) }()

	bare := []string{b.floor, "mcp", standIn.socket(), strings.Join(names, ",")}
	if err := b.smallCall(ctx, t, whole, alone, bare); err != nil {
		return err
	}
	if err := b.longList(ctx, t, whole, alone, filepath.Join(answers, answerFile(taskv1.TaskService_List_FullMethodName))); err != nil {
		return err
	}
	return b.startAndMemory(ctx, t, l, standIn, bare)
}

// smallCall compares reading one task with an empty tool that makes an empty gRPC call.
func (b *bench) smallCall(ctx context.Context, t *table, whole, alone client, bare []string) (err error) {
	empty, _, _, err := connect(ctx, nil, bare...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty.stop()) }()
	line := call(getTask, `{"id":"t1"}`)
	took, err := interleave(b.rounds, empty.timed(line), whole.timed(line), alone.timed(line))
	if err != nil {
		return err
	}
	t.times("one task", took[1], took[0], 1.5)
	t.times("one task, without the daemon's work", took[2], took[0], 1.5)
	return nil
}

// longList compares a page of rows with the same bytes over a plain socket, made JSON once.
func (b *bench) longList(ctx context.Context, t *table, whole, alone client, answer string) (err error) {
	socket := filepath.Join(b.dir, "bytes.sock")
	host, err := b.startFloor(ctx, "bytes", socket, answer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.stop()) }()
	once, _, _, err := connect(ctx, nil, b.floor, "list", socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, once.stop()) }()
	twice, _, _, err := connect(ctx, nil, b.floor, "list", socket, "text")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, twice.stop()) }()

	line := call(listTasks, fmt.Sprintf(`{"limit":%d}`, rows))
	took, err := interleave(b.rounds, once.timed(line), twice.timed(line), whole.timed(line), alone.timed(line))
	if err != nil {
		return err
	}
	t.times("page of 50 tasks", took[2], took[0], 3)
	t.times("page of 50 tasks, without the daemon's work", took[3], took[0], 3)
	t.times("  the text copy on both sides", took[3], took[1], 3)
	// The relay has no switch for the copy. What it costs the floor it costs at least.
	t.times("  the text copy on neither side (estimated)", took[3]-(took[1]-took[0]), took[0], 3)
	return nil
}

// startAndMemory compares a process from its start to the list of tools, and when idle
// after that.
func (b *bench) startAndMemory(ctx context.Context, t *table, l, standIn *lab, bare []string) error {
	servers := []func() (client, []byte, time.Duration, error){
		func() (client, []byte, time.Duration, error) { return connect(ctx, nil, bare...) },
		func() (client, []byte, time.Duration, error) { return b.connectRelay(ctx, l) },
		func() (client, []byte, time.Duration, error) { return b.connectRelay(ctx, standIn) },
	}
	var took [3][]time.Duration
	var memory [3][]float64
	for range b.rounds {
		for i, connect := range servers {
			c, _, started, err := connect()
			if err != nil {
				return err
			}
			time.Sleep(idleAfter)
			used, err := c.anonymous()
			if err := errors.Join(err, c.stop()); err != nil {
				return err
			}
			took[i], memory[i] = append(took[i], started), append(memory[i], used)
		}
	}
	t.times("start to tools/list", median(took[1]), median(took[0]), 1.3)
	t.times("start to tools/list, without the daemon's work", median(took[2]), median(took[0]), 1.3)
	if bare := median(memory[0]); bare > 0 {
		t.compare("anonymous memory when idle", median(memory[1]), bare, "KiB", 1.3)
	}
	return nil
}

// startFloor starts a floor that listens on a socket.
func (b *bench) startFloor(ctx context.Context, what, socket, answers string) (*process, error) {
	p, err := start(ctx, nil, b.floor, what, socket, answers)
	if err != nil {
		return nil, err
	}
	if _, err := p.out.ReadString('\n'); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// record writes what the daemon answers into files, for a host to answer the same, and
// returns their directory.
func (b *bench) record(ctx context.Context, l *lab) (string, error) {
	dir := filepath.Join(b.dir, "answers")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	attached, err := l.attach(ctx)
	if err != nil {
		return "", err
	}
	client := taskv1.NewTaskServiceClient(l.operator)
	task, err := client.Get(ctx, &taskv1.GetRequest{WorkspaceId: l.workspace, Id: "t1"})
	if err != nil {
		return "", err
	}
	page, err := client.List(ctx, &taskv1.ListRequest{WorkspaceId: l.workspace, Limit: proto.Int32(rows)})
	if err != nil {
		return "", err
	}
	if got := len(page.GetTasks()); got != rows {
		return "", fmt.Errorf("a page has %d tasks instead of %d: make the tasks of the benchmark shorter", got, rows)
	}
	for method, answer := range map[string]proto.Message{
		"/floor/Empty": nil,
		facadev1.FacadeService_Attach_FullMethodName: attached,
		taskv1.TaskService_Get_FullMethodName:        task,
		taskv1.TaskService_List_FullMethodName:       page,
	} {
		data, err := proto.Marshal(answer)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, answerFile(method)), data, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// answerFile returns the name under which a host finds the answer of a method.
func answerFile(method string) string { return strings.ReplaceAll(method[1:], "/", ".") }

// toolNames returns the names in an answer to tools/list.
func toolNames(answer []byte) ([]string, error) {
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("read the list of tools: %w", err)
	}
	var names []string
	for _, tool := range list.Result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}
