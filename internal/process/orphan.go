package process

import (
	"context"
	"os"
	"syscall"
)

// Adopt makes this process the parent of every descendant that loses its own, where the
// system can do that. From then on Orphans has to be swept, or the dead among them are
// never let go.
func Adopt() error { return adopt() }

// Orphans ends what this process has adopted. It serves a process that starts some of its
// children in a session of their own (shims, which end what is theirs) and the others in
// its own session. Nothing that descends from a shim can come back to this session; so a
// child in another session that is no shim was left by a shim that was killed.
//
// The zero value is ready. It is for one goroutine.
type Orphans struct{ seen map[ID]int }

// sights is how often an orphan must have been seen: a shim is a child before anybody
// has noted it as one, and a dead one before its end was waited for.
const sights = 3

// Sweep ends the orphans that three sweeps in a row have seen, and lets the dead go. Known
// reports whether a child is a shim. Sweep returns how many orphans it ended.
func (o *Orphans) Sweep(ctx context.Context, known func(ID) bool) (ended int, err error) {
	children, err := strangers()
	if err != nil {
		return 0, err
	}
	seen := map[ID]int{}
	for id, zombie := range children {
		if known(id) {
			continue
		}
		if seen[id] = o.seen[id] + 1; seen[id] < sights {
			continue
		}
		if !zombie {
			ended++
			err = End(ctx, id, 0)
		}
		if err != nil {
			break
		}
		_, _ = syscall.Wait4(id.PID, nil, syscall.WNOHANG, nil) // it may be waited for
	}
	o.seen = seen
	return ended, err
}

// strangers returns the children of this process that are in another session, and whether
// they are dead.
func strangers() (map[ID]bool, error) {
	if childless() {
		return nil, nil // which is cheap to know, and nearly always so
	}
	self, err := look(os.Getpid())
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	list, err := all()
	if err != nil {
		return nil, err
	}
	out := map[ID]bool{}
	for _, p := range list {
		if p.parent == self.pid && p.session != self.session {
			out[ID{PID: p.pid, Start: p.start, Boot: boot}] = p.zombie
		}
	}
	return out, nil
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
