package main

import (
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// enumWord returns the word that an enum value travels as: its name in lower case,
// without the name of its type.
func enumWord(v protoreflect.EnumValueDescriptor) string {
	var prefix strings.Builder
	for i, r := range string(v.Parent().Name()) {
		if i > 0 && unicode.IsUpper(r) {
			prefix.WriteByte('_')
		}
		prefix.WriteRune(unicode.ToUpper(r))
	}
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix.String()+"_"))
}
