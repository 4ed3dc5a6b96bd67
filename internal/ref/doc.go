// Package ref holds the one way in which callers name things: ids, handles, names and
// parts of things, and the cursors that name a place in a list.
//
// It knows the grammar and nothing else. Whether the thing that a reference names
// exists, and in which workspace, is for the family that owns it to say.
package ref
