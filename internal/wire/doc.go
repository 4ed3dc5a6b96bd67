// Package wire is the one JSON form of a message. The relay turns tool arguments into
// requests and answers into results with it, the CLI prints with it, and the generator
// derives schemas from its rules, so that what a schema promises, what is accepted and
// what is written cannot drift apart.
//
// # What is written
//
// Compact JSON in the order of the field numbers, under the names of the .proto file,
// always valid UTF-8:
//
//	field without presence    always there: "", 0, false, [], {}
//	field with presence       left out when it is not set
//	int64, uint64 and kin     text, "9007199254740993"
//	float, double             number; "NaN", "Infinity", "-Infinity"
//	enum                      lower-case word without the prefix of its type, see EnumWord;
//	                          a number that this binary does not know is "unspecified"
//	bytes                     standard base64 with padding
//	map                       object, sorted by key
//	Timestamp                 RFC 3339 in UTC, 0, 3, 6 or 9 digits of a second
//	Duration                  "1.500s", the same digits
//	FieldMask                 comma-separated lowerCamelCase paths
//	wrappers                  their scalar
//	Struct, Value, ListValue  the JSON they stand for
//	text                      escapes only what JSON demands, and U+2028 and U+2029;
//	                          what is not UTF-8 becomes U+FFFD
//
// Unknown fields are skipped. google.protobuf.Any and a field of the enum NullValue have
// no form of their own: they are written like any other message and enum.
//
// # What is accepted
//
// The same but for the word "unspecified", and what models are known to send in its place:
//
//	field                      also accepted
//	any                        null: the same as leaving it out (but a google.protobuf.Value
//	                           takes null as its value)
//	the arguments as a whole   nothing at all, or null: {}
//	number                     a number as text, "5"; an integer may be spelled 5.0 or 1e2,
//	                           and every integer is exact, none passes through a float
//	bool                       "true", "false"
//	text                       an integer, kept digit for digit
//	enum                       any case, blanks around it, the full name in the .proto file
//	bytes                      the URL alphabet; no padding
//	list, map, message         text that holds the JSON of one: "[\"a\"]", "{\"k\":1}"
//	Timestamp                  any offset
//	FieldMask                  the names of the .proto file
//	\ud83d without its half    becomes U+FFFD
//
// # What is refused
//
//	unknown names, with the nearest known one
//	names that differ from a known one only in case or underscores
//	the bound field, under any spelling and at any depth
//	a name given twice, a key given twice, two members of a oneof
//	one value where a list is expected; null as an element or a value of a map
//	"unspecified" for an enum, and unknown words, with the words that exist
//	"null", "undefined", "none" and "" where they can only be a mistake: for numbers,
//	bools, enums, times and durations (elsewhere text is kept as it is written)
//	numbers as text with anything around them, fractions for integers, overflow
//	fractions and bools where text is expected
//	text that is not UTF-8, nesting deeper than 100, anything after the end
//
// Every refusal names the path of the field, such as tasks[3].depends_on[0], and says
// what was expected and what would be right. All refusals of a call come in one error, up
// to twenty and a count of the rest. Where the arguments are not JSON or nested too deep,
// reading ends there, and what was found until then is told as well.
//
// A bound field is refused wherever a message may have fields, whether or not the message
// declares it. With "workspace_id" bound, "workspace" is refused too, and every spelling
// of the two in other case, with hyphens or with nothing between the words; but a message
// that declares a field with exactly such another name keeps it. The keys of maps and of
// Struct are data and not fields.
package wire
