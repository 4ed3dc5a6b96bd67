package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// look reads what /proc tells of a process.
func look(pid int) (info, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ESRCH) { // it ended between open and read
		err = fs.ErrNotExist
	}
	if err != nil {
		return info{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	p, ok := parseStat(pid, data)
	if !ok {
		return info{}, fmt.Errorf("look at process %d: %q is no line of /proc/PID/stat", pid, data)
	}
	return p, nil
}

// parseStat reads a line of /proc/PID/stat. Its second field is the program's name in
// parentheses, which may hold blanks and parentheses itself, so the fields are counted
// from the last one that closes.
func parseStat(pid int, line []byte) (info, bool) {
	const ( // places behind the name: three less than in proc_pid_stat(5)
		state, parent, group, session, start = 0, 1, 2, 3, 19
	)
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
	if len(fields) <= start {
		return info{}, false
	}
	p := info{pid: pid, start: fields[start], zombie: fields[state] == "Z" || fields[state] == "X"}
	for field, into := range map[int]*int{parent: &p.parent, group: &p.group, session: &p.session} {
		n, err := strconv.Atoi(fields[field])
		if err != nil {
			return info{}, false
		}
		*into = n
	}
	return p, true
}

// bootID returns what is different each time that the machine starts.
func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("tell the run of the machine: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// all reads every process that may be read.
func all() (table, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var t table
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // no process
		}
		if p, err := look(pid); err == nil {
			t = append(t, p)
		}
	}
	return t, nil
}

// hasVariable reports whether a process was started with a variable, as NAME=value. Of
// others' processes nothing is known.
func hasVariable(pid int, variable string) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"\x00"))
}

// adopt makes this process the parent of every descendant that loses its own.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	return nil
}

// childless reports whether this process certainly has no child.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
}
