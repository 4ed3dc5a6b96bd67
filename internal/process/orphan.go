package process

import (
	"context"
	"os"
	"slices"
	"syscall"
)

// Adopt makes this process the parent of every descendant that loses its own, where the
// system can do that. From then on Orphans has to be swept, or the dead among them are
// never let go.
func Adopt() error { return adopt() }

// Orphans ends what this process adopts from shims, its children that end what is below
// them. While a shim lives, it adopts; so what was once below a shim and has become a
// child of this process was left by a shim that was killed. What others of its children
// leave is none of its business.
//
// It knows what it saw: a process that was started and that left the session of those that
// were there, between one sweep and the end of its shim, is missed.
//
// The zero value is ready. It is for one goroutine.
type Orphans struct {
	below map[ID]int // what was seen below shims and lives, with its session
	dead  map[ID]int // children that nobody has waited for, with how often they were seen
}

// patience is how often a dead child must have been seen to be let go: whoever started it
// waits for it sooner.
const patience = 15

// Sweep ends the orphans that there are, and lets the dead go. Shim reports whether a child
// is a shim. Sweep returns how many orphans it ended, without what was below them.
func (o *Orphans) Sweep(ctx context.Context, shim func(ID) bool) (ended int, err error) {
	if childless() {
		o.below, o.dead = nil, nil
		return 0, nil // which is cheap to know, and nearly always so
	}
	boot, err := bootID()
	if err != nil {
		return 0, err
	}
	list, err := all()
	if err != nil {
		return 0, err
	}
	orphans, dead := o.look(list, boot, shim)
	for _, id := range orphans {
		if err := End(ctx, id, 0); err != nil {
			return ended, err
		}
		ended++
	}
	for _, id := range dead {
		_, _ = syscall.Wait4(id.PID, nil, syscall.WNOHANG, nil) // it may have been waited for
	}
	return ended, nil
}

// look takes note of what is there, and returns the orphans that live and the dead to let
// go.
func (o *Orphans) look(list table, boot string, shim func(ID) bool) (orphans, dead []ID) {
	idOf := func(p info) ID { return ID{PID: p.pid, Start: p.start, Boot: boot} }
	var shims []int
	var others []info
	for _, p := range list {
		if p.parent != os.Getpid() {
			continue
		}
		if shim(idOf(p)) {
			shims = append(shims, p.pid)
		} else {
			others = append(others, p)
		}
	}
	below, seen := map[ID]int{}, map[ID]int{}
	sessions := map[int]bool{}
	for _, p := range list.of(shims, func(int) bool { return true }) {
		if !slices.Contains(shims, p.pid) {
			below[idOf(p)] = p.session
		}
	}
	for _, p := range list {
		if session, known := o.below[idOf(p)]; known {
			below[idOf(p)] = p.session
			sessions[session], sessions[p.session] = true, true
		}
	}
	for _, p := range others {
		id := idOf(p)
		_, known := below[id]
		switch {
		case p.zombie:
			if seen[id] = o.dead[id] + 1; seen[id] >= patience {
				dead = append(dead, id)
			}
		case known, sessions[p.session] && p.pid != p.session: // a leader unseen may be a shim
			below[id] = p.session
			orphans = append(orphans, id)
		}
	}
	o.below, o.dead = below, seen
	return orphans, dead
}

// Foreign returns the child of this process through which a process descends from it, if
// that child is in another session: lineage is the process itself and its ancestors.
func Foreign(lineage []ID) (child ID, ok bool) {
	for i := 1; i < len(lineage); i++ {
		if lineage[i].PID != os.Getpid() {
			continue
		}
		self, err := look(os.Getpid())
		if err != nil {
			return ID{}, false
		}
		p, ok := lineage[i-1].look()
		return lineage[i-1], !ok || p.session != self.session
	}
	return ID{}, false
}
