package relay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestFramesAreLines(t *testing.T) {
	long := strings.Repeat("x", inputBuffer+100)
	r := bufio.NewReaderSize(strings.NewReader("a\n\n"+long+"\nlast"), inputBuffer)
	for _, want := range []string{"a\n", "\n", long + "\n"} {
		got, err := readFrame(r)
		if err != nil || string(got) != want {
			t.Fatalf("got %.20q of %d bytes and error %v, want %.20q of %d", got, len(got), err, want, len(want))
		}
	}
	if got, err := readFrame(r); string(got) != "last" || !errors.Is(err, io.EOF) {
		t.Errorf("got %q and error %v, want the last line with %v", got, err, io.EOF)
	}
}

func TestIDsAreToldApart(t *testing.T) {
	seen := map[jsonrpc.ID]string{}
	for _, text := range []string{`1`, `-1`, `"1"`, `""`, `"a"`, `9007199254740992`, `9007199254740993`, `9007199254740994`, `"9007199254740993"`} {
		id, ok := parseID([]byte(text))
		if !ok {
			t.Errorf("%s was refused", text)
		}
		if other := seen[id]; other != "" {
			t.Errorf("%s and %s are the same", text, other)
		}
		seen[id] = text
	}
	for _, text := range []string{`1.5`, `1e400`, `null`, `true`, `[1]`, `{}`, ``} {
		if _, ok := parseID([]byte(text)); ok {
			t.Errorf("%s was accepted", text)
		}
	}
}

// FuzzScan holds the scanner against the SDK's own reader: what is accepted means the same
// to both.
func FuzzScan(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b":[1,{"c":null}]},"_meta":{"progressToken":"p"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`,
		`{"jsonrpc":"2.0","id":"x","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"params":{"name":"a","name":"b"},"method":"m"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"\ud83d","paramſ":1}`,
		`null`, `{`, `{"":`, "\xff", `{"jsonrpc":"2.0","id":1e3,"method":""}{`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var s scanner
		m, problem := s.scan(line)
		if problem != nil {
			if problem.Code == 0 || problem.Message == "" {
				t.Errorf("problem without words: %+v", problem)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatal("accepted what is not JSON")
		}
		if m.answer {
			return // not looked at
		}
		if m.id != nil {
			if _, ok := parseID(m.id); !ok {
				t.Errorf("accepted the id %s", m.id)
			}
		}
		if n := bytes.Count(line, []byte("[")) + bytes.Count(line, []byte("{")); n > 900 {
			return // deeper than the SDK reads
		}
		msg, err := jsonrpc.DecodeMessage(line)
		if err != nil {
			t.Fatalf("the SDK refuses what was accepted: %v", err)
		}
		req, ok := msg.(*jsonrpc.Request)
		if !ok {
			t.Fatalf("the SDK takes it for a %T", msg)
		}
		if req.Method != m.method {
			t.Errorf("got method %q, the SDK %q", m.method, req.Method)
		}
		if m.params != nil && !bytes.Equal(req.Params, m.params) {
			t.Errorf("got params %s, the SDK %s", m.params, req.Params)
		}
	})
}
