package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// zombie is the kernel's SZOMB.
const zombie = 5

// look asks the kernel about a process.
func look(pid int) (info, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.pid", pid)
	if err != nil {
		return info{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	if len(list) == 0 {
		return info{}, fmt.Errorf("look at process %d: %w", pid, os.ErrNotExist)
	}
	return toInfo(&list[0]), nil
}

func toInfo(k *unix.KinfoProc) info {
	pid := int(k.Proc.P_pid)
	session, err := unix.Getsid(pid)
	if err != nil {
		session = 0 // it ended, or is not ours to ask about
	}
	return info{
		pid: pid, parent: int(k.Eproc.Ppid), group: int(k.Eproc.Pgid), session: session,
		start:  fmt.Sprintf("%d.%06d", k.Proc.P_starttime.Sec, k.Proc.P_starttime.Usec),
		zombie: k.Proc.P_stat == zombie,
	}
}

// bootID returns what is different each time that the machine starts.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("tell the run of the machine: %w", err)
	}
	return id, nil
}

// all asks for every process.
func all() (table, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	t := make(table, len(list))
	for i := range list {
		t[i] = toInfo(&list[i])
	}
	return t, nil
}

// hasVariable knows of no process how it was started.
func hasVariable(int, string) bool { return false }

// adopt does nothing: here an orphan always goes to the first process of the machine.
func adopt() error { return nil }

// childless reports whether this process certainly has no child that it adopted.
func childless() bool { return true }
