// Package process knows other processes: who one is, whom it descends from, and how to end
// it with everything that it started.
//
// A pid alone names nobody, because the kernel gives it away again. An ID adds when the
// process was started and in which run of the machine, so it can be stored and still means
// one process after a restart. A process that has ended and that its parent has not been
// told of (a zombie) still has its pid, so no other can have it; it does not live.
//
// What descends from a process is found by looking at all processes. A process that leaves
// its parent (by forking twice, by a group or a session of its own) stays a descendant as
// long as an ancestor has adopted it, see Adopt; Linux alone can do that.
//
// This is order, and no prison. What a process has another program of the same user do for
// it (a service manager, cron, a terminal multiplexer, a container engine) does not descend
// from it. On Linux two things can be missed of what has made its environment anew, see
// Mark: what made a session of its own within the two seconds before its shim was killed,
// which the daemon still takes for nobody's; and what had one when shim and daemon were
// killed at the same moment, which then belongs to the first process of the machine. On
// macOS a process that forks twice is lost at once, and an agent outlives a shim that is
// killed.
package process

import (
	"fmt"
	"os"
)

// ID is one process, for ever.
type ID struct {
	// PID is its number, while it lasts.
	PID int `json:"pid"`
	// Start is when it was started, in the system's own terms.
	Start string `json:"start"`
	// Boot is the run of the machine that it belongs to.
	Boot string `json:"boot"`
}

// String returns the ID for logs and messages, such as "4711 (started 93120)".
func (id ID) String() string { return fmt.Sprintf("%d (started %s)", id.PID, id.Start) }

// info is what the system tells of a process at one moment.
type info struct {
	pid, parent, group, session int
	start                       string
	zombie                      bool
}

// Of returns who has a pid now. Where nobody has it, the error wraps os.ErrNotExist.
func Of(pid int) (ID, error) {
	p, err := look(pid)
	if err != nil {
		return ID{}, err
	}
	boot, err := bootID()
	if err != nil {
		return ID{}, err
	}
	return ID{PID: pid, Start: p.start, Boot: boot}, nil
}

// Self returns this process.
func Self() (ID, error) { return Of(os.Getpid()) }

// Alive reports whether the process still runs. A later one with the same pid is another.
func (id ID) Alive() bool {
	p, ok := id.look()
	return ok && !p.zombie
}

// look returns what the system tells of the process, and false where nobody or somebody
// else has its pid.
func (id ID) look() (info, bool) {
	boot, err := bootID()
	if err != nil || boot != id.Boot {
		return info{}, false
	}
	p, err := look(id.PID)
	return p, err == nil && p.start == id.Start
}

// Ancestors returns the parent of the process with a pid, the parent's parent, and so on
// up to the first process of the machine, or to the last that may be read. The list is of
// one moment: where the process itself or a link to it went away meanwhile, there is an
// error, which wraps os.ErrNotExist if the process is gone.
func Ancestors(pid int) ([]ID, error) {
	// A link changes when a parent ends, so once more is nearly always enough.
	const attempts = 5
	for range attempts {
		list, stable, err := ancestors(pid)
		if err != nil || stable {
			return list, err
		}
	}
	return nil, fmt.Errorf("the ancestors of process %d do not stand still", pid)
}

// ancestors reads the chain once, and reports whether it was the same at one moment.
func ancestors(pid int) (list []ID, stable bool, err error) {
	boot, err := bootID()
	if err != nil {
		return nil, false, err
	}
	child, err := look(pid)
	if err != nil {
		return nil, false, err
	}
	chain := []info{child}
	for child.parent > 0 {
		parent, err := look(child.parent)
		if err != nil {
			break // it is hidden, or it has just ended, which the second look tells
		}
		chain = append(chain, parent)
		list = append(list, ID{PID: parent.pid, Start: parent.start, Boot: boot})
		child = parent
	}
	// A pid is given away only after its children have another parent. So a child that
	// still has the parent that it had is proof that the pid was the parent's throughout.
	for i, before := range chain {
		now, err := look(before.pid)
		if err != nil && i == 0 {
			return nil, false, err
		}
		stable = err == nil && now.start == before.start && now.parent == before.parent
		if !stable {
			break
		}
	}
	return list, stable, nil
}
