package flashdecode_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/flashdecode/flashdecode"
	"github.com/flashdecode/flashdecode/models/tiny"
	"github.com/flashdecode/flashdecode/sample"
	"github.com/flashdecode/flashdecode/tokenizer"
)

func ExampleModel_Generate() {
	m, err := flashdecode.Embedded()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	var story strings.Builder
	tokens := 0
	for tok, err := range m.Generate(context.Background(), tiny.StoryPrompt, flashdecode.MaxTokens(40)) {
		if err != nil {
			log.Fatal(err)
		}
		story.WriteString(tok.Text) // print it here to see the story as it comes
		tokens++
	}
	fmt.Println(tokens, "tokens,", len(strings.Fields(story.String())) > 20)
	// Output: 40 tokens, true
}

// A fact is planted 1,000 tokens before its question. Attention is split every 256 tokens, which changes nothing but
// who computes what.
func Example_needle() {
	m, err := flashdecode.Embedded(flashdecode.Split("fixed:256"), flashdecode.KV("q8_0"))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	count := func(text string) int { return len(m.Tokenizer().Encode(nil, text, tokenizer.EncodeOptions{})) }
	n, err := tiny.NewNeedle(1000, 7, count)
	if err != nil {
		log.Fatal(err)
	}
	answer := ""
	for tok, err := range m.Generate(context.Background(), n.Prompt, flashdecode.MaxTokens(32), flashdecode.Stop("\n")) {
		if err != nil {
			log.Fatal(err)
		}
		answer += tok.Text
	}
	fmt.Println("found:", n.Found(answer))
	// Output: found: true
}

func ExampleModel_Chat() {
	m, err := flashdecode.Embedded(flashdecode.Context(2048))
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	p := sample.Default()
	p.Temperature, p.MinP, p.Seed = 0.7, 0.05, 1
	reply := ""
	messages := []flashdecode.Message{{Role: "user", Content: tiny.StoryRequest}}
	for tok, err := range m.Chat(context.Background(), messages, flashdecode.Sampling(p), flashdecode.MaxTokens(300)) {
		if err != nil {
			log.Fatal(err)
		}
		reply += tok.Text
	}
	fmt.Println("about Ruby:", strings.Contains(reply, "Ruby"))
	// Output: about Ruby: true
}

// Cancelling the context ends a generation; so does leaving the loop.
func ExampleModel_Generate_cancel() {
	m, err := flashdecode.Embedded()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := flashdecode.OnDone(func(r flashdecode.Result) { fmt.Println("ended:", r.Reason) })
	for _, err := range m.Generate(ctx, tiny.StoryPrompt, flashdecode.IgnoreEnd(), done) {
		if err != nil {
			fmt.Println(errors.Is(err, context.Canceled))
			break
		}
		cancel()
	}
	// Output:
	// true
	// ended: cancelled
}

func ExampleOpen_error() {
	_, err := flashdecode.Open("nowhere.gguf")
	fmt.Println(errors.Is(err, os.ErrNotExist))

	_, err = flashdecode.Embedded(flashdecode.Split("sometimes"))
	fmt.Println(err)
	// Output:
	// true
	// flashdecode: plan: unknown policy "sometimes": want auto, none, fixed:N or splits:S
}
