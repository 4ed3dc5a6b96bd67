package relay_test

import (
	"strconv"
	"strings"
	"testing"
)

// A client that is answered without its id waits for ever.
func TestWhatIsNestedTooDeepIsAnsweredWithItsID(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	lists := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	if got := c.tool("1", "compozy_host__tasks__list", `{"limit":`+lists(900)+`}`); got.Meta.Error.Code != "invalid_argument" || !strings.HasPrefix(got.text(), "limit: ") {
		t.Errorf("got %+v, want it refused by field", got)
	}
	for i, line := range []string{
		toolCall("ID", "compozy_host__tasks__list", `{"limit":`+lists(1_000)+`}`),
		toolCall("ID", "compozy_host__tasks__list", `{"limit":`+lists(10_000)+`}`),
		toolCall("ID", "compozy_host__tasks__list", `{"limit":`+strings.Repeat("[", 1<<20)),
		toolCall("ID", "compozy_host__tasks__list", `{"limit":`+strings.Repeat(`{"a":`, 20_000)),
		`{"jsonrpc":"2.0","id":ID,"method":"ping","params":{"_meta":{"a":` + lists(10_000) + `}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"ping","trace":` + lists(10_000) + `}`,
	} {
		id := strconv.Itoa(100 + i)
		c.send(strings.Replace(line, "ID", id, 1))
		if a := c.answer(); string(a.ID) != id || a.Error == nil || a.Error.Code != -32600 || !strings.Contains(a.Error.Message, "1000 levels") {
			t.Errorf("%.100s…: got answer to %s: %+v, want the limit", line, a.ID, a.Error)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if a := c.answer(); string(a.ID) != "2" || a.Error != nil {
		t.Errorf("got answer to %s: %+v, want one to 2", a.ID, a.Error)
	}
	if n := len(h.seen()); n != 0 {
		t.Errorf("the daemon saw %d calls, want none", n)
	}
}
