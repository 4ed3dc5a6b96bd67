// Command vendorproto writes the source of the validation rules that proto/ imports.
// It prints the descriptor that the Go module of those rules carries, so the file
// comes from a pinned module and no repository has to be copied.
//
//	go run . proto
package main

import (
	"log"
	"os"
	"path/filepath"

	validate "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/jhump/protoreflect/v2/protoprint"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const header = "// Printed by tools/vendorproto from the module buf.build/gen/go/bufbuild/protovalidate.\n" +
	"// Copyright 2023-2026 Buf Technologies, Inc., Apache License 2.0. Not edited by hand.\n\n"

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: vendorproto DIRECTORY")
	}
	if err := write(validate.File_buf_validate_validate_proto, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(file protoreflect.FileDescriptor, dir string) error {
	printer := protoprint.Printer{Indent: "  ", Compact: true}
	text, err := printer.PrintProtoToString(file)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file.Path())
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(header+text), 0o644)
}
