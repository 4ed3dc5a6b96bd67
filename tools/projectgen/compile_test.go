package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

// compile reads files from a directory as buf does and returns what the plugin gets of
// them: the ones named are to be generated, what they import comes along.
func compile(ctx context.Context, dir string, names ...string) ([]*protogen.File, error) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			ImportPaths: []string{dir, "../../proto", "../vendorproto/proto"},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(fd protoreflect.FileDescriptor) {
		if seen[fd.Path()] {
			return
		}
		seen[fd.Path()] = true
		for i := range fd.Imports().Len() {
			add(fd.Imports().Get(i))
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(fd))
	}
	for _, f := range files {
		add(f)
	}

	// The plugin is started with bytes. Reading them is what makes the compiler's options
	// the ones that Go code knows.
	bytes, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	request = &pluginpb.CodeGeneratorRequest{}
	if err := proto.Unmarshal(bytes, request); err != nil {
		return nil, err
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return nil, err
	}
	return plugin.Files, nil
}

// hostAPI returns the files of the Host API.
func hostAPI(t *testing.T) []*protogen.File {
	t.Helper()
	paths, err := filepath.Glob("../../proto/compozy/*/v*/*.proto")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		name, err := filepath.Rel("../../proto", path)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(name))
	}
	protos, err := compile(t.Context(), "../../proto", names...)
	if err != nil {
		t.Fatal(err)
	}
	return protos
}

// everyTool returns the tools of the Host API and, since those do not use everything that a
// schema can say, the ones of the kitchen sink.
func everyTool(t *testing.T) []tool {
	t.Helper()
	sink, err := compile(t.Context(), "testdata/kitchen-sink", "case.proto")
	if err != nil {
		t.Fatal(err)
	}
	var tools []tool
	for _, protos := range [][]*protogen.File{hostAPI(t), sink} {
		methods, wrong := decide(protos)
		some, more := project(methods)
		if err := report(append(wrong, more...)); err != nil {
			t.Fatal(err)
		}
		tools = append(tools, some...)
	}
	return tools
}
