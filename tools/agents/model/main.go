// Command model stands in for the models that coding agents talk to, so that a real agent
// runs whole turns without a network: one server on loopback that answers as Anthropic
// (messages), OpenAI (chat completions, responses) and Gemini (generateContent), streamed
// or not. It thinks nothing. The prompt says what to do, a line at a time:
//
//	CALL write {"path": "a.txt"}   call the first offered tool whose name ends in write
//	SLEEP 500                      wait 500 ms
//	WORDS 2000                     say 2000 words
//	FIRST                          say the first prompt of the conversation
//
// After a call's result it says "TOOL SAID: " and the result, and goes on with the lines
// after that call. A prompt without such a line is echoed. A request that wants JSON of
// some schema gets the smallest instance of it.
//
// It prints its address, http://127.0.0.1:PORT, as the only line of standard output and
// one line a request on standard error, and runs until it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	record := flag.String("record", "", "append the body of every request to this `file`, one a line")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *record); err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, record string) error {
	m := &model{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if record != "" {
		f, err := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // The file that the caller names.
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // What was written is for a person to look at.
		m.record = f
	}

	// Loopback alone, whatever the machine's interfaces are: what an agent sends is code.
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: m.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Printf("http://%s\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
