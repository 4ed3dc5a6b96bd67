package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody is more than any agent sends: all its tools and a long conversation.
const maxBody = 64 << 20

// object is a JSON object of an answer.
type object = map[string]any

// model serves all APIs. It keeps nothing: every request carries its whole conversation.
type model struct {
	log    *slog.Logger
	mu     sync.Mutex // guards record
	record io.Writer  // nil: requests are not kept
}

// api is how one vendor's API is read and answered.
type api struct {
	name  string
	read  func(r *http.Request, body []byte) (talk, error)
	write func(w *writer, t talk, a answer)
}

func (m *model) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/messages", m.serve(api{"anthropic", readAnthropic, writeAnthropic}))
	mux.HandleFunc("POST /v1/messages/count_tokens", countTokens)
	mux.Handle("POST /v1/chat/completions", m.serve(api{"chat", readChat, writeChat}))
	mux.Handle("POST /v1/responses", m.serve(api{"responses", readResponses, writeResponses}))
	// The last part is MODEL:generateContent or MODEL:streamGenerateContent.
	mux.Handle("POST /v1beta/models/{call}", m.serve(api{"gemini", readGemini, writeGemini}))
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		(&writer{ResponseWriter: w}).json(object{"object": "list", "data": []object{{"id": "stub-1", "object": "model"}}, "models": []object{}})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		m.log.WarnContext(r.Context(), "unknown request", "method", r.Method, "path", r.URL.Path)
		refuse(w, http.StatusNotFound, fmt.Errorf("the stub has no %s %s", r.Method, r.URL.Path))
	})
	return mux
}

func (m *model) serve(a api) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		m.keep(body)
		t, err := a.read(r, body)
		if err != nil {
			m.log.WarnContext(r.Context(), "bad request", "api", a.name, "error", err)
			refuse(w, http.StatusBadRequest, err)
			return
		}
		said := reply(t)
		called := ""
		if said.call != nil {
			called = said.call.tool.full()
		}
		m.log.InfoContext(r.Context(), "request", "api", a.name, "model", t.model, "stream", t.stream,
			"tools", len(t.tools), "results", len(t.results), "call", called, "text", shorten(said.text, 200))
		if !sleep(r.Context(), said.wait) {
			return // the agent hung up: its turn was cancelled
		}
		a.write(&writer{ResponseWriter: w, in: int64(len(body)) / 4}, t, said)
	})
}

func (m *model) keep(body []byte) {
	if m.record == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.record.Write(append([]byte(strings.ReplaceAll(string(body), "\n", " ")), '\n'))
}

// writer sends an answer, whole or as server-sent events. That the agent is gone is no
// error: it may cancel at any time.
type writer struct {
	http.ResponseWriter
	in int64 // tokens of the request, at four bytes each
}

// out is the number of tokens of an answer.
func (*writer) out(a answer) int64 {
	n := int64(len(a.text))
	if a.call != nil {
		n += int64(len(a.call.args))
	}
	return max(1, n/4)
}

func (w *writer) json(v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// event sends one event at once. Some APIs name their events.
func (w *writer) event(name string, v any) {
	w.Header().Set("Content-Type", "text/event-stream")
	if name != "" {
		_, _ = fmt.Fprintf(w, "event: %s\n", name)
	}
	j, _ := json.Marshal(v) //nolint:errchkjson // Of strings, numbers, booleans, slices and maps alone.
	_, _ = fmt.Fprintf(w, "data: %s\n\n", j)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// typed sends an event whose name is also in it.
func (w *writer) typed(name string, v object) {
	v["type"] = name
	w.event(name, v)
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"error": object{"type": "invalid_request_error", "message": err.Error()}})
}

// newID returns an identifier that no other answer has, not even one of an earlier run
// that an agent remembers.
func newID(prefix string) string { return prefix + rand.Text() }

// chunks cuts a text for streaming, so that agents see more than one piece.
func chunks(text string) []string {
	const words = 20
	all := strings.SplitAfter(text, " ")
	var parts []string
	for len(all) > 0 {
		n := min(words, len(all))
		parts = append(parts, strings.Join(all[:n], ""))
		all = all[n:]
	}
	return parts
}

func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// sleep reports whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
