package env

import "strings"

// gap is what stands between two columns.
const gap = 2

// narrowest is how narrow a column may become to make the others fit.
const narrowest = 4

// table is rows of cells, with or without a heading.
type table struct {
	heading []string
	rows    [][]string
}

// format returns the table as lines. On a terminal the widest columns are cut until every
// row fits on a line.
func (t table) format(terminal int, color bool) string {
	var widths []int
	for _, row := range append([][]string{t.heading}, t.rows...) {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c))
		}
	}
	if terminal > 0 {
		fit(widths, terminal)
	}
	var b strings.Builder
	if t.heading != nil {
		heading := line(t.heading, widths)
		if color {
			heading = "\x1b[1m" + heading + "\x1b[0m"
		}
		b.WriteString(heading + "\n")
	}
	for _, row := range t.rows {
		b.WriteString(line(row, widths) + "\n")
	}
	return b.String()
}

// fit makes the widest columns narrower until a row fits.
func fit(widths []int, terminal int) {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > terminal; total-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			return
		}
		widths[widest]--
	}
}

func line(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		c = cut(c, widths[i])
		b.WriteString(c + strings.Repeat(" ", widths[i]-columns(c)+gap))
	}
	return strings.TrimRight(b.String(), " ")
}
