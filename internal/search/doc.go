// Package search turns text into the tokens that an engine indexes, turns what somebody
// typed into a query that no engine can misread, and ranks what the engine found.
//
// The engine, FTS5 or a tsvector, only finds candidates. Tokens and ranking are the same
// code whatever the engine is, so the same words give the same hits in the same order.
package search
