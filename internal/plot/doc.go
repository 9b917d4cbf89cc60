// Package plot draws lines of measured points: as an SVG file, or with characters on a terminal.
package plot
