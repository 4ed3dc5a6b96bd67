// Package compozy is the root of the module. Nothing imports it: it holds the one
// directive that generates code, and the tests about the tree as a whole.
package compozy

//go:generate make generate
