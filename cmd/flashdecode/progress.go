package main

import (
	"fmt"
	"strings"
	"time"
)

// progress is a bar on a terminal for what takes longer than progressAfter. Elsewhere it shows nothing.
type progress struct {
	app   *app
	what  string
	unit  string
	start time.Time
	shown bool
	last  time.Time
}

const (
	progressAfter = 300 * time.Millisecond
	progressEvery = 100 * time.Millisecond
	progressWidth = 30
)

func (p *progress) set(done, total int) {
	now := time.Now()
	if !p.app.live || total <= 0 || now.Sub(p.start) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.shown, p.last = true, now
	done = min(done, total)
	full := progressWidth * done / total
	rate := float64(done) / now.Sub(p.start).Seconds()
	left := ""
	if done > 0 {
		left = fmt.Sprintf(", %v left", time.Duration(float64(total-done)/rate*1e9).Round(time.Second))
	}
	fmt.Fprintf(p.app.err, "\r\x1b[K%s [%s%s] %d/%d %s%s", p.what,
		strings.Repeat("#", full), strings.Repeat(".", progressWidth-full), done, total, p.unit, left)
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.app.err, "\r\x1b[K")
		p.shown = false
	}
}

// show sets what is being done, too; every thing starts the clock anew.
func (p *progress) show(what string, done, total int) {
	if what != p.what {
		p.what, p.start = what, time.Now()
	}
	p.set(done, total)
}
