package ref

// PageBytes is how many bytes the rows of one page may take. What surrounds the rows, a
// cursor and a few counts, still fits below 24 KiB.
const PageBytes = 24_000

// Page returns the rows that make one page, and whether there are more. The caller has
// fetched up to limit+1 rows, where limit is at least 1; size returns about how many bytes
// a row takes in the answer. A page ends at limit rows, or before the row that would take
// it over PageBytes; it never ends before its first row, so that a list always goes on.
func Page[T any](rows []T, limit int, size func(T) int) (page []T, more bool) {
	used := 0
	for i, row := range rows {
		used += size(row)
		if i == limit || i > 0 && used > PageBytes {
			return rows[:i], true
		}
	}
	return rows, false
}
