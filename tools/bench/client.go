package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	listTools   = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}` + "\n"
)

// client is an MCP client that costs as little as possible: lines go out as they are, and
// answers are looked at only for errors.
type client struct {
	*process
}

// connect starts an MCP server and shakes hands. tools is its answer to tools/list, valid
// until the next one; took is how long it was to that answer.
func connect(ctx context.Context, environment []string, command ...string) (c client, tools []byte, took time.Duration, err error) {
	begin := time.Now()
	p, err := start(ctx, environment, command...)
	if err != nil {
		return client{}, nil, 0, err
	}
	c = client{p}
	if _, err = c.ask(initialize); err == nil {
		tools, err = c.ask(initialized + listTools)
	}
	took = time.Since(begin)
	if err != nil {
		return client{}, nil, 0, errors.Join(err, p.stop())
	}
	return c, tools, took, nil
}

// ask sends lines of which one is answered, and returns the answer.
func (c client) ask(lines string) ([]byte, error) {
	if _, err := io.WriteString(c.in, lines); err != nil {
		return nil, err
	}
	answer, err := c.out.ReadSlice('\n')
	switch {
	case err != nil:
		return nil, err
	case !bytes.Contains(answer, []byte(`"result":`)) || bytes.Contains(answer, []byte(`"isError":true`)):
		return nil, fmt.Errorf("%s was answered %.500s", bytes.TrimSpace([]byte(lines)), answer)
	}
	return answer, nil
}

// timed returns the side of a measurement that asks the same again and again.
func (c client) timed(line string) side {
	return func() (time.Duration, error) {
		begin := time.Now()
		_, err := c.ask(line)
		return time.Since(begin), err
	}
}

// call returns the line that calls a tool.
func call(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n", tool, arguments)
}
