package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// pause is the time between two looks at processes that are to end.
const pause = 20 * time.Millisecond

// End ends a process and everything that it started: all that descend from it, and all
// that are in the process group or the session that it leads. They are asked to terminate;
// what is left after grace is stopped, so that nothing can slip away, and killed. End
// returns nil when nothing is left, at once where the process was gone before. Stopped
// ones are woken to hear of it.
//
// A process that has ended and whose parent has not waited for it is good enough to find
// what it left in its session; once it was waited for, its pid may be another's, so its
// session is left alone. Of both it finds what has its Mark.
//
// An end of ctx ends the grace, and the wait for processes that do not die: the kernel
// holds them, and the error names them.
func End(ctx context.Context, id ID, grace time.Duration) error {
	return end(ctx, grace, (&tree{root: id, whole: true}).find)
}

// Clear ends everything below a process, and not the process itself: what End does, by
// one that has adopted its orphans and goes on.
func Clear(ctx context.Context, id ID, grace time.Duration) error {
	return end(ctx, grace, (&tree{root: id}).find)
}

// tree is what End and Clear end.
type tree struct {
	root  ID
	whole bool // the root, its group and its session too
	known []ID // that were found before, and may have lost the root since
}

// find returns the processes of the tree that live.
func (t *tree) find() ([]ID, error) {
	_, rooted := t.root.look()
	list, err := all()
	if err != nil {
		return nil, err
	}
	// What came of the root's pid counts only if it was the root's throughout.
	if rooted {
		_, rooted = t.root.look()
	}
	var start []int
	if rooted {
		start = append(start, t.root.PID)
	}
	byPID := map[int]info{}
	for _, p := range list {
		byPID[p.pid] = p
	}
	for _, id := range t.known {
		if byPID[id.PID].start == id.Start {
			start = append(start, id.PID)
		}
	}
	if t.whole {
		start = append(start, list.marked(t.root)...)
	}
	t.known = nil
	for _, p := range list.of(start, func(pid int) bool { return t.whole || pid != t.root.PID }) {
		if !p.zombie && p.pid != os.Getpid() && (t.whole || p.pid != t.root.PID) {
			t.known = append(t.known, ID{PID: p.pid, Start: p.start, Boot: t.root.Boot})
		}
	}
	return t.known, nil
}

// table is all processes at about one moment.
type table []info

// of returns the processes with the given pids, all that descend from them, and all that
// are in a group or a session that one of these leads, if leads says so.
func (t table) of(pids []int, leads func(pid int) bool) []info {
	children, led := map[int][]info{}, map[int][]info{}
	var found []info
	seen := map[int]bool{}
	for _, p := range t {
		children[p.parent] = append(children[p.parent], p)
		led[p.group] = append(led[p.group], p)
		led[p.session] = append(led[p.session], p)
		if slices.Contains(pids, p.pid) {
			seen[p.pid] = true
			found = append(found, p)
		}
	}
	for i := 0; i < len(found); i++ { // it grows
		next := children[found[i].pid]
		if leads(found[i].pid) {
			next = append(slices.Clone(next), led[found[i].pid]...)
		}
		for _, p := range next {
			if !seen[p.pid] {
				seen[p.pid] = true
				found = append(found, p)
			}
		}
	}
	return found
}

// end ends what find finds, until it finds nothing.
func end(ctx context.Context, grace time.Duration, find func() ([]ID, error)) error {
	left, err := find()
	if err != nil || len(left) == 0 {
		return err
	}
	for _, id := range left {
		id.signal(syscall.SIGTERM)
		id.signal(syscall.SIGCONT)
	}
	gentle, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		if left = awaitEnd(gentle, left); len(left) > 0 || gentle.Err() != nil {
			return kill(ctx, find)
		}
		if left, err = find(); err != nil || len(left) == 0 {
			return err
		}
	}
}

// kill ends what find finds and leaves it no time. The end of ctx bounds only the wait for
// the dead.
func kill(ctx context.Context, find func() ([]ID, error)) error {
	for {
		left, err := freeze(find)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, id := range left {
			id.signal(syscall.SIGKILL)
		}
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		rest := awaitEnd(patience, left)
		cancel()
		if len(rest) > 0 && ctx.Err() != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("processes %v do not end", rest))
		}
	}
}

// freeze stops what find finds until it finds no more than was stopped: one that runs
// could start another while the others are killed.
func freeze(find func() ([]ID, error)) ([]ID, error) {
	// One that is woken as fast as it is stopped is killed all the same.
	const rounds = 20
	var left []ID
	stopped := map[ID]bool{}
	for range rounds {
		var err error
		if left, err = find(); err != nil {
			return nil, err
		}
		fresh := false
		for _, id := range left {
			if !stopped[id] {
				stopped[id], fresh = true, true
				id.signal(syscall.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
	}
	return left, nil
}

// awaitEnd returns when none of the processes lives, or those that do when ctx ends.
func awaitEnd(ctx context.Context, ids []ID) []ID {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		var left []ID
		for _, id := range ids {
			if id.Alive() {
				left = append(left, id)
			}
		}
		if len(left) == 0 {
			return nil
		}
		ids = left
		select {
		case <-ctx.Done():
			return ids
		case <-ticker.C:
		}
	}
}

// signal sends a signal to the process, and to no other that may have its pid: the handle
// is taken before the look, and on Linux it stays with the process that it was taken of.
func (id ID) signal(sig syscall.Signal) {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return
	}
	defer func() { _ = p.Release() }() // it only gives back the handle
	if _, same := id.look(); same {
		_ = p.Signal(sig) // it may have ended just now, which is what was wanted
	}
}
