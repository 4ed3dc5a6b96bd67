package wire

import (
	"bytes"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// unspecified is the word of an enum value that says nothing. It is written for numbers
// that this binary does not know, and never accepted.
const unspecified = "unspecified"

// EnumWord returns the word that an enum value travels as: its name in lower case and
// without the name of its type, so that TASK_STATUS_WAITING_HUMAN of TaskStatus is
// "waiting_human". A name that does not begin with its type keeps its whole.
func EnumWord(value protoreflect.EnumValueDescriptor) string {
	name := string(value.Name())
	if enum, ok := value.Parent().(protoreflect.EnumDescriptor); ok {
		name = trimType(name, string(enum.Name()))
	}
	return strings.ToLower(name)
}

// trimType cuts the type's name off the front of a value's name. It compares letters
// and digits only, because HTTPMethod may be spelled HTTP_METHOD or H_T_T_P_METHOD.
func trimType(name, typ string) string {
	rest := name
	for i := range len(typ) {
		if typ[i] == '_' {
			continue
		}
		rest = strings.TrimLeft(rest, "_")
		if rest == "" || !strings.EqualFold(rest[:1], typ[i:i+1]) {
			return name
		}
		rest = rest[1:]
	}
	word, found := strings.CutPrefix(rest, "_")
	if !found || word == "" {
		return name
	}
	return word
}

// enumPlan holds what is known of an enum before any message is seen.
type enumPlan struct {
	quoted  map[protoreflect.EnumNumber][]byte // the word of each number, in quotes
	numbers map[string]protoreflect.EnumNumber // by word and by lower-case name
	words   []string                           // what may be sent, in the order of the .proto file
}

func newEnumPlan(ed protoreflect.EnumDescriptor) *enumPlan {
	values := ed.Values()
	e := &enumPlan{
		quoted:  make(map[protoreflect.EnumNumber][]byte, values.Len()),
		numbers: make(map[string]protoreflect.EnumNumber, 2*values.Len()),
	}
	for i := range values.Len() {
		v := values.Get(i)
		word, number := EnumWord(v), v.Number()
		if e.quoted[number] == nil { // of two names for one number the first is written
			e.quoted[number] = []byte(`"` + word + `"`)
		}
		e.numbers[strings.ToLower(string(v.Name()))] = number
		e.numbers[word] = number
		if word != unspecified {
			e.words = append(e.words, word)
		}
	}
	return e
}

func (e *enumPlan) appendWord(dst []byte, number protoreflect.EnumNumber) []byte {
	if word := e.quoted[number]; word != nil {
		return append(dst, word...)
	}
	return append(dst, `"`+unspecified+`"`...)
}

// number returns the value that text stands for.
func (e *enumPlan) number(text []byte) (protoreflect.EnumNumber, bool) {
	number, ok := e.numbers[string(text)] // as it is written, nearly always
	if !ok {
		number, ok = e.numbers[strings.ToLower(string(bytes.TrimSpace(text)))]
	}
	return number, ok && string(e.quoted[number]) != `"`+unspecified+`"`
}
