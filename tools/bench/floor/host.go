package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// serveHost serves the methods that dir has answers for. The file of a method is named
// after it, with a dot for the slash; what it holds is sent as it is.
func serveHost(ctx context.Context, socket, dir string, in io.Reader, out io.Writer) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}))
	services := map[string]*grpc.ServiceDesc{}
	for _, f := range files {
		answer, err := os.ReadFile(filepath.Join(dir, f.Name())) //nolint:gosec // the directory is the caller's
		if err != nil {
			return err
		}
		dot := strings.LastIndexByte(f.Name(), '.')
		service, method := f.Name()[:dot], f.Name()[dot+1:]
		if services[service] == nil {
			services[service] = &grpc.ServiceDesc{ServiceName: service}
		}
		add(services[service], method, answer)
	}
	for _, service := range services {
		server.RegisterService(service, nil)
	}

	listener, err := listen(ctx, socket, out)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in) // until whoever started this one ends
		server.Stop()
	}()
	return server.Serve(listener)
}

// add adds a method with its one answer. Attaching is a stream that stays open after it.
func add(service *grpc.ServiceDesc, method string, answer []byte) {
	if method == "Attach" {
		service.Streams = append(service.Streams, grpc.StreamDesc{
			StreamName: method, ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				if err := stream.RecvMsg(new([]byte)); err != nil {
					return err
				}
				if err := stream.SendMsg(&answer); err != nil {
					return err
				}
				<-stream.Context().Done()
				return nil
			},
		})
		return
	}
	service.Methods = append(service.Methods, grpc.MethodDesc{
		MethodName: method,
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return &answer, decode(new([]byte))
		},
	})
}

// listen listens on a socket and says so.
func listen(ctx context.Context, socket string, out io.Writer) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(out, "listening")
	return listener, err
}

// rawCodec passes messages through as they are on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*message)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("receive into a %T", v)
	}
	*message = data.Materialize()
	return nil
}
