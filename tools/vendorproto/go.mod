module compozy.dev/compozy/tools/vendorproto

go 1.26.0

require (
	buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go v1.36.12-20260825204119-511051f7f437.2
	github.com/jhump/protoreflect/v2 v2.0.1
	google.golang.org/protobuf v1.36.12
)
