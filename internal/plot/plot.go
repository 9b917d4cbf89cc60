package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// Point is one measurement. Err is its deviation, drawn in both directions.
type Point struct{ X, Y, Err float64 }

// Series is a line with a name. Points are in the order of X.
type Series struct {
	Name   string
	Points []Point
}

// Chart is what to draw. Both axes begin at zero, so that lengths compare.
type Chart struct {
	Title, XLabel, YLabel string
	Series                []Series
}

// bounds returns the largest x and y, at least 1, with the y of error bars.
func (c *Chart) bounds() (x, y float64) {
	x, y = 1, 1e-9
	for _, s := range c.Series {
		for _, p := range s.Points {
			x, y = max(x, p.X), max(y, p.Y+p.Err)
		}
	}
	return x, y
}

// ticks returns round numbers from 0 to at least top, at most n+1 of them: binary ones if top is a multiple of 1,024.
func ticks(top float64, n int) []float64 {
	raw := top / float64(n)
	if top >= 1024 && math.Mod(top, 1024) == 0 {
		return steps(top, math.Exp2(math.Ceil(math.Log2(raw))))
	}
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * mag
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*mag >= raw {
			step = m * mag
			break
		}
	}
	return steps(top, step)
}

// steps counts from 0 to at least top.
func steps(top, step float64) (t []float64) {
	for i := 0; ; i++ {
		v := float64(i) * step
		t = append(t, v)
		if v >= top*(1-1e-9) {
			return t
		}
	}
}

// The picture's measures, in pixels.
const (
	width, height            = 720, 420
	left, right, top, bottom = 70, 20, 40, 50
	legendLine               = 18
)

// colours tell lines apart in print and for most colour-blind readers (Okabe and Ito, "Color Universal Design", 2008).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// SVG writes the chart as a picture that needs nothing else.
func (c *Chart) SVG(w io.Writer) error {
	var b strings.Builder
	xMax, yMax := c.bounds()
	xs, ys := ticks(xMax, 8), ticks(yMax, 6)
	xMax, yMax = xs[len(xs)-1], ys[len(ys)-1]
	tall := height + legendLine*len(c.Series)
	px := func(x float64) float64 { return left + x/xMax*(width-left-right) }
	py := func(y float64) float64 { return height - bottom - y/yMax*(height-top-bottom) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, tall, width, tall)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, tall)
	fmt.Fprintf(&b, `<text x="%d" y="22" text-anchor="middle" font-size="14">%s</text>`+"\n", width/2, escape(c.Title))
	for _, x := range xs {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", px(x), height-bottom+18, number(x))
	}
	for _, y := range ys {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, py(y), width-right, left-8, py(y)+4, number(y))
	}
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", left, top, height-bottom, width-right)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-bottom+38, escape(c.XLabel))
	fmt.Fprintf(&b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, escape(c.YLabel))
	for i, s := range c.Series {
		colour := colours[i%len(colours)]
		var path strings.Builder
		for j, p := range s.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], px(p.X), py(p.Y))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", px(p.X), py(p.Y), colour)
			if p.Err > 0 {
				fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="%s"/>`+"\n", px(p.X), py(p.Y+p.Err), py(max(p.Y-p.Err, 0)), colour)
			}
		}
		y := height + legendLine*i
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
		fmt.Fprintf(&b, `<path d="M%d %dh20" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n", left, y, colour, left+28, y+4, escape(s.Name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// number words a tick: 8192 as 8k, since depths are powers of two.
func number(v float64) string {
	if v >= 1024 && math.Mod(v, 1024) == 0 {
		return fmt.Sprintf("%gk", v/1024)
	}
	return fmt.Sprintf("%g", math.Round(v*1000)/1000)
}

// The terminal's picture, in characters.
const (
	termWidth, termHeight = 64, 16
	marks                 = "*o+x#@%"
)

// Text draws the chart with characters.
func (c *Chart) Text() string {
	xMax, yMax := c.bounds()
	ys := ticks(yMax, 4)
	yMax = ys[len(ys)-1]
	grid := make([][]byte, termHeight+1)
	for i := range grid {
		grid[i] = []byte(strings.Repeat(" ", termWidth+1))
	}
	at := func(x, y float64) (col, row int) {
		return int(math.Round(x / xMax * termWidth)), termHeight - int(math.Round(y/yMax*termHeight))
	}
	for i, s := range c.Series {
		for j, p := range s.Points {
			if j > 0 {
				line(grid, at, s.Points[j-1], p)
			}
			col, row := at(p.X, p.Y)
			grid[row][col] = marks[i%len(marks)]
		}
	}
	labels := make([]string, termHeight+1)
	wide := 0
	for _, y := range ys {
		_, row := at(0, y)
		labels[row] = number(y)
		wide = max(wide, utf8.RuneCountInString(labels[row]))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s against %s)\n", c.Title, c.YLabel, c.XLabel)
	for i, row := range grid {
		axis := "|"
		if labels[i] != "" {
			axis = "+"
		}
		fmt.Fprintf(&b, "%*s %s%s\n", wide, labels[i], axis, strings.TrimRight(string(row), " "))
	}
	end := number(xMax)
	fmt.Fprintf(&b, "%*s +%s\n%*s 0%*s\n", wide, "", strings.Repeat("-", termWidth), wide, "", termWidth, end)
	for i, s := range c.Series {
		fmt.Fprintf(&b, "%*s %c %s\n", wide, "", marks[i%len(marks)], s.Name)
	}
	return b.String()
}

// line puts dots between two points, where nothing is yet.
func line(grid [][]byte, at func(x, y float64) (int, int), p, q Point) {
	const dots = 4 * termWidth
	for k := range dots {
		f := float64(k) / dots
		col, row := at(p.X+f*(q.X-p.X), p.Y+f*(q.Y-p.Y))
		if grid[row][col] == ' ' {
			grid[row][col] = '.'
		}
	}
}
