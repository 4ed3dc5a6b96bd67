package ref

import "unicode/utf8"

// PageBytes is how many bytes the rows of one page may take. What surrounds the rows, a
// cursor and a few counts, still fits below 24 KiB.
const PageBytes = 24_000

// Page returns the rows that make one page, and whether there are more. The caller has
// fetched up to limit+1 rows, where limit is at least 1; size returns about how many bytes
// a row takes in the answer. A page ends at limit rows, or before the row that would take
// it over PageBytes; it never ends before its first row, so that a list always goes on.
func Page[T any](rows []T, limit int, size func(T) int) (page []T, more bool) {
	page = Within(rows[:min(limit, len(rows))], PageBytes, size)
	return page, len(page) < len(rows)
}

// Within returns the first rows, as many as take at most so many bytes together, for
// answers that hold several lists. It never leaves out the first row.
func Within[T any](rows []T, bytes int, size func(T) int) []T {
	for i, row := range rows {
		if bytes -= size(row); i > 0 && bytes < 0 {
			return rows[:i]
		}
	}
	return rows
}

// Quoted returns how many bytes a text takes within the quotes of JSON, as answers are
// written: up to six for each of its own.
func Quoted(text string) int {
	n := 0
	for _, r := range text {
		switch {
		case r == '"' || r == '\\' || '\b' <= r && r <= '\r' && r != '\v':
			n += len(`\n`)
		case r < ' ' || r == '\u2028' || r == '\u2029':
			n += len(`\u0001`)
		default:
			n += utf8.RuneLen(r) // what is not UTF-8 becomes U+FFFD
		}
	}
	return n
}
