//go:build race

package tokenizer

// raceEnabled shortens what the race detector makes ten times slower without learning more from it.
const raceEnabled = true
