package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/wire"
)

// maxLine is the longest request line.
const maxLine = 64 << 10

// serveList answers each line of in that has an id, whatever its method, as a call of
// tasks__list.
func serveList(ctx context.Context, socket string, text bool, in io.Reader, out io.Writer) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	host := bufio.NewReadWriter(bufio.NewReaderSize(conn, maxLine), bufio.NewWriter(conn))
	encoder := wire.NewEncoder((*taskv1.ListResponse)(nil).ProtoReflect().Descriptor())
	var answer, line, quoted []byte
	for lines := bufio.NewReaderSize(in, maxLine); ; {
		request, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var call struct {
			ID     json.RawMessage
			Params struct{ Arguments json.RawMessage }
		}
		if err := json.Unmarshal(request, &call); err != nil {
			return err
		}
		if call.ID == nil {
			continue
		}
		var req taskv1.ListRequest
		if err := wire.Decode(call.Params.Arguments, &req, wire.DecodeOptions{}); err != nil {
			return err
		}
		if answer, err = ask(host, &req, answer); err != nil {
			return err
		}
		line = append(append(line[:0], `{"jsonrpc":"2.0","id":`...), call.ID...)
		line = append(line, `,"result":{"structuredContent":`...)
		start := len(line)
		if line, err = encoder.AppendJSON(line, answer); err != nil {
			return err
		}
		if text {
			if quoted, err = jsontext.AppendQuote(quoted[:0], line[start:]); err != nil {
				return err
			}
			line = append(append(append(line, `,"content":[{"type":"text","text":`...), quoted...), `}]`...)
		}
		if _, err := out.Write(append(line, "}}\n"...)); err != nil {
			return err
		}
	}
}

// ask sends a request with its length before it and returns the answer, in buf if it fits.
func ask(host *bufio.ReadWriter, req proto.Message, buf []byte) ([]byte, error) {
	request, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	if err := writeFrame(host.Writer, request); err != nil {
		return nil, err
	}
	return readFrame(host.Reader, buf)
}

// serveBytes answers every frame on every connection with a file.
func serveBytes(ctx context.Context, socket, file string, in io.Reader, out io.Writer) error {
	answer, err := os.ReadFile(file) //nolint:gosec // the file is the caller's
	if err != nil {
		return err
	}
	listener, err := listen(ctx, socket, out)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answerFrames(conn, answer)
		}
	}()
	_, _ = io.Copy(io.Discard, in) // until whoever started this one ends
	return listener.Close()
}

func answerFrames(conn net.Conn, answer []byte) {
	defer func() { _ = conn.Close() }()
	r, w := bufio.NewReader(conn), bufio.NewWriterSize(conn, maxLine)
	var request []byte
	var err error
	for {
		if request, err = readFrame(r, request); err != nil {
			return // the other side has ended
		}
		if err := writeFrame(w, answer); err != nil {
			return
		}
	}
}

func writeFrame(w *bufio.Writer, frame []byte) error {
	// A buffered writer keeps its first error for Flush.
	_ = binary.Write(w, binary.BigEndian, uint32(len(frame))) //nolint:gosec // frames are short
	_, _ = w.Write(frame)
	return w.Flush()
}

func readFrame(r *bufio.Reader, buf []byte) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	if int(size) > cap(buf) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err := io.ReadFull(r, buf)
	return buf, err
}
