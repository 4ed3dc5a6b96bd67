package process

import (
	"os"
	"strconv"
)

// markVariable is what everything that a shim has started has in its environment.
const markVariable = "COMPOZY_SHIM"

// Mark returns a variable, as NAME=value, that tells of whoever has it in its environment
// that it came of this process. A process that gives it to what it starts is followed by
// End also after its own end: to those that have left their parents, its group and its
// session. One that makes its environment anew loses the mark.
func (id ID) Mark() string { return markVariable + "=" + strconv.Itoa(id.PID) + "-" + id.Start }

// marked returns the processes that have the mark of one that is dead. While it lives, what
// it started descends from it.
func (t table) marked(id ID) (pids []int) {
	if boot, err := bootID(); err != nil || boot != id.Boot || id.Alive() {
		return nil
	}
	mark := id.Mark()
	for _, p := range t {
		if !p.zombie && p.pid != os.Getpid() && hasVariable(p.pid, mark) {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
