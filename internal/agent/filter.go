package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// maxFiltered is the longest line that goes through a filter, in bytes.
const maxFiltered = 32 << 20

// RunFilter runs an MCP server and lets through only some of its tools: args are their
// names with commas between them, "--", and the server's command. An agent starts it in
// the server's place. It returns the exit code of the process.
//
// Every message is written anew from what was read of it, so that both sides read the same
// in it. A message that is no object is not passed on.
func RunFilter(args []string, in io.Reader, out, errs io.Writer) int {
	const usage, failed = 2, 1
	if len(args) < 3 || args[1] != "--" {
		_, _ = fmt.Fprintln(errs, "usage: compozyd filter TOOL,… -- COMMAND…") // nobody else is to be told
		return usage
	}
	cmd := exec.Command(args[2], args[3:]...) //nolint:gosec,noctx // the operator's record names it, and it ends with its input
	cmd.Stderr = errs
	server, err := cmd.StdinPipe()
	if err == nil {
		var answers io.Reader
		if answers, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				f := &filter{tools: strings.Split(args[0], ","), lists: map[string]bool{}, client: out, server: server}
				go f.requests(in) // ends with its input, or with the process
				f.answers(answers)
				err = cmd.Wait()
			}
		}
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	case err != nil:
		_, _ = fmt.Fprintln(errs, "compozyd filter:", err) // as above
		return failed
	}
	return 0
}

// filter stands between a client and a server.
type filter struct {
	tools []string

	mu     sync.Mutex
	lists  map[string]bool // requests for lists of tools that are not answered yet, by id
	client io.Writer
	server io.WriteCloser
}

// object is what is looked at of a message; the rest is passed on as it is.
type object map[string]json.RawMessage

func (m object) text(key string) string {
	var s string
	_ = json.Unmarshal(m[key], &s) // what is no text is none
	return s
}

// disguised reports whether an object has one of the keys in another case: some programs
// take that for the same.
func (m object) disguised(keys ...string) bool {
	for given := range m {
		if slices.ContainsFunc(keys, func(key string) bool { return given != key && strings.EqualFold(given, key) }) {
			return true
		}
	}
	return false
}

// eachLine calls do with the lines of r that hold an object, until r ends.
func eachLine(r io.Reader, do func(m object)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxFiltered)
	for lines.Scan() {
		var m object
		if json.Unmarshal(lines.Bytes(), &m) == nil && m != nil && !m.disguised("method", "id", "params", "result") {
			do(m)
		}
	}
}

// requests passes on what the client sends.
func (f *filter) requests(in io.Reader) {
	eachLine(in, func(m object) {
		method, id := m.text("method"), string(bytes.TrimSpace(m["id"]))
		switch method {
		case "tools/list":
			f.mu.Lock()
			f.lists[id] = true
			f.mu.Unlock()
		case "tools/call":
			var params object
			_ = json.Unmarshal(m["params"], &params) // what has no name is not let through
			name := params.text("name")
			if !slices.Contains(f.tools, name) || params.disguised("name") {
				f.refuse(m["id"], name)
				return
			}
			m["params"], _ = json.Marshal(params) // it was JSON
		}
		f.send(f.server, m)
	})
	_ = f.server.Close() // it ends by that
}

// refuse answers a call of a tool that is not let through as one that there is not.
func (f *filter) refuse(id json.RawMessage, name string) {
	if id == nil {
		return
	}
	const invalidParams = -32602
	problem, _ := json.Marshal(map[string]any{"code": invalidParams, "message": fmt.Sprintf("unknown tool %q", name)}) // plain values
	f.send(f.client, object{"jsonrpc": json.RawMessage(`"2.0"`), "id": id, "error": problem})
}

// answers passes on what the server sends, without the tools that are not let through.
func (f *filter) answers(from io.Reader) {
	eachLine(from, func(m object) {
		id := string(bytes.TrimSpace(m["id"]))
		f.mu.Lock()
		listed := m["method"] == nil && f.lists[id]
		if listed {
			delete(f.lists, id)
		}
		f.mu.Unlock()
		if listed && m["result"] != nil {
			m["result"] = f.listed(m["result"])
		}
		f.send(f.client, m)
	})
}

// listed returns the result of a list without other tools. What cannot be read is no list.
func (f *filter) listed(result json.RawMessage) json.RawMessage {
	var all object
	var tools []json.RawMessage
	if json.Unmarshal(result, &all) != nil || json.Unmarshal(all["tools"], &tools) != nil {
		return json.RawMessage(`{"tools":[]}`)
	}
	kept := []json.RawMessage{}
	for _, tool := range tools {
		var t object
		if json.Unmarshal(tool, &t) == nil && slices.Contains(f.tools, t.text("name")) {
			kept = append(kept, tool)
		}
	}
	all["tools"], _ = json.Marshal(kept) // they were JSON
	out, _ := json.Marshal(all)          // likewise
	return out
}

// send writes a message on a line of its own.
func (f *filter) send(to io.Writer, m object) {
	line, err := json.Marshal(m)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = to.Write(append(line, '\n')) // whoever does not read any more gets no more
}
