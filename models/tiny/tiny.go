package tiny

import (
	_ "embed"
)

//go:embed tiny.Q8_0.gguf
var data []byte

// Name is what the model calls itself in its file and its results.
const Name = "tiny-stories-recall"

// Context is the number of tokens it was trained to attend to.
const Context = 16384

// Data returns the GGUF file. It belongs to the program's image: read it, do not write it.
func Data() []byte { return data }

// StoryPrompt opens a story; the model finishes it and ends by itself, after 100 to 250 tokens.
const StoryPrompt = "Once upon a time, there was a"

// StoryRequest asks for a story in a chat; the model's template applies.
const StoryRequest = "Tell me a story about a brave fox named Ruby."
