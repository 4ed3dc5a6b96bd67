package sessioncmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/proto"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// diff shows all of what a session changed, not only the first page: on a terminal in
// colour and through the pager.
func (c *commands) diff(ctx context.Context, _ *cli.Command, request, answer proto.Message) (err error) {
	req, _ := request.(*sessionv1.DiffRequest)
	resp, _ := answer.(*sessionv1.DiffResponse)
	p := c.printer()
	if len(resp.GetFiles()) == 0 && req.GetCursor() == "" {
		p.line(plain, "%s changed nothing.", req.GetId())
		return p.err
	}
	if c.Width > 0 && c.Pager != "" {
		out, wait, err := page(ctx, c.Pager, c.Out, c.Err)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, wait()) }()
		p.out = out
	}
	return c.pages(ctx, p, req, resp)
}

// pages shows a page of a diff and all behind it.
func (c *commands) pages(ctx context.Context, p *printer, req *sessionv1.DiffRequest, resp *sessionv1.DiffResponse) error {
	conn, err := c.Conn()
	if err != nil {
		return err
	}
	client := sessionv1.NewSessionServiceClient(conn)
	if req.GetCursor() == "" {
		p.line(bold, "%s against %.12s: +%d -%d", count(len(resp.GetFiles()), "file"), resp.GetBase(), resp.GetAdded(), resp.GetRemoved())
	}
	colored := &diffLines{printer: p}
	for first := true; ; first = false {
		if first || req.GetStatOnly() {
			p.files(resp.GetFiles())
		}
		if first && resp.GetDiff() != "" {
			p.write(plain, "\n")
		}
		colored.write(resp.GetDiff())
		if p.err != nil {
			break
		}
		if resp.GetNextCursor() == "" {
			break
		}
		next, _ := proto.Clone(req).(*sessionv1.DiffRequest)
		next.Cursor = resp.GetNextCursor()
		if resp, err = client.Diff(ctx, next); err != nil {
			return err
		}
	}
	colored.flush()
	if errors.Is(p.err, syscall.EPIPE) {
		return nil // whoever reads has seen enough
	}
	return p.err
}

// files lists what changed.
func (p *printer) files(files []*sessionv1.FileChange) {
	for _, f := range files {
		path, lines := f.GetPath(), fmt.Sprintf("+%d -%d", f.GetAdded(), f.GetRemoved())
		if f.GetOldPath() != "" {
			path = f.GetOldPath() + " → " + path
		}
		if f.GetBinary() {
			lines = "binary"
		}
		p.line(plain, "  %-12s %s  %s", f.GetStatus(), path, lines)
	}
}

// diffLines writes a diff that comes in pieces, each line in its colour.
type diffLines struct {
	*printer

	rest string // a line that has not ended
}

func (d *diffLines) write(piece string) {
	text := d.rest + piece
	whole := strings.LastIndexByte(text, '\n') + 1
	d.rest = text[whole:]
	for line := range strings.Lines(text[:whole]) {
		d.printer.text(styleOf(line), line)
	}
}

// flush writes what is left.
func (d *diffLines) flush() {
	d.printer.text(styleOf(d.rest), d.rest)
	d.end()
}

// styleOf returns the style of a line of a diff.
func styleOf(line string) string {
	switch {
	case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "+++ "), strings.HasPrefix(line, "--- "):
		return bold
	case strings.HasPrefix(line, "@@"):
		return cyan
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	default:
		return plain
	}
}

// page starts the person's pager. wait ends its input and waits until they have left it.
func page(ctx context.Context, pager string, stdout, stderr io.Writer) (in io.Writer, wait func() error, err error) {
	// As git does it: the pager is a command line, and less is told to leave short texts
	// on the screen and colours as they are.
	cmd := exec.CommandContext(ctx, "sh", "-c", "LESS=${LESS-FRX}; export LESS; "+pager) //nolint:gosec // the person's own PAGER
	cmd.Stdout, cmd.Stderr = stdout, stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("prepare pager: %w", err)
	}
	signal.Ignore(syscall.SIGINT) // Ctrl-C is the pager's while it runs
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start pager %q: %w", pager, err)
	}
	return pipe, func() error {
		// A pipe that the pager has closed is no matter.
		_ = pipe.Close()
		defer signal.Reset(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("pager %q: %w", pager, err)
		}
		return nil
	}, nil
}
