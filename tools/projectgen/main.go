// Command projectgen is a protoc plugin that turns the Host API's decisions into what is
// published: the table of tools in gen/mcptool and the reviewed list of them in api.
//
// It works in three steps without side effects: decide reads what was decided about each
// method, project derives the schemas, emit writes the files. Everything that is wrong is
// reported at once, each with its place and what to do about it.
package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	protogen.Options{}.Run(func(plugin *protogen.Plugin) error {
		plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		files, err := generate(plugin.Files)
		if err != nil {
			return err
		}
		for _, f := range files {
			// An import path would be for protogen to leave it out of the imports it adds.
			if _, err := plugin.NewGeneratedFile(f.name, "").Write(f.content); err != nil {
				return err
			}
		}
		return nil
	})
}

// generate returns the files that publish what the given ones decide.
func generate(protos []*protogen.File) ([]file, error) {
	methods, wrong := decide(protos)
	tools, more := project(methods)
	if err := report(append(wrong, more...)); err != nil {
		return nil, err
	}
	return emit(methods, tools)
}
