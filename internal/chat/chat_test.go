package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flashdecode/flashdecode/weights/gguf"
)

type golden struct {
	Conversations [][]Message
	Templates     map[string]struct {
		SHA256 string
		Runs   []struct {
			Conversation int
			Generate     bool
			Thinking     *bool
			Text, Error  string
		}
	}
}

var now = time.Date(2025, 3, 7, 14, 5, 9, 0, time.UTC) // as scripts/golden_chat.py

// templateText finds the template that a golden was made of, or skips.
func templateText(t *testing.T, name string) string {
	t.Helper()
	kind, file, _ := strings.Cut(name, "/")
	switch kind {
	case "library":
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
		if err != nil || len(strings.TrimSpace(string(dir))) == 0 {
			t.Skip("the Jinja library's source is not there: run go mod download")
		}
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "templates", file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	case "gguf":
		dir := os.Getenv("FLASHDECODE_MODELS")
		if dir == "" {
			dir = filepath.Join("..", "..", ".models")
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Skipf("%s is not there: run scripts/fetch_models.sh", file)
		}
		f, err := gguf.Open(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		text, err := f.Meta.String("tokenizer.chat_template")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Clone(text)
	}
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAgainstTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "goldens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	for name, tc := range g.Templates {
		t.Run(name, func(t *testing.T) {
			text := templateText(t, name)
			if sum := sha256.Sum256([]byte(text)); tc.SHA256 != "" && hex.EncodeToString(sum[:]) != tc.SHA256 {
				t.Fatal("not the template that the goldens were made of: run scripts/golden_chat.py")
			}
			tmpl, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range tc.Runs {
				opts := Options{BOS: "<s>", EOS: "</s>", AddGenerationPrompt: run.Generate, Now: now}
				if run.Thinking != nil {
					opts.Vars = map[string]any{"enable_thinking": *run.Thinking}
				}
				got, err := tmpl.Render(g.Conversations[run.Conversation], opts)
				var raised *RaisedError
				switch {
				case run.Error != "":
					if err == nil || errors.As(err, &raised) && raised.Message != run.Error {
						t.Errorf("conversation %d: %q, error %v, want %q", run.Conversation, got, err, run.Error)
					}
				case err != nil:
					t.Errorf("conversation %d: %v", run.Conversation, err)
				case got != run.Text:
					t.Errorf("conversation %d, generate %t:\n got %q\nwant %q", run.Conversation, run.Generate, got, run.Text)
				}
			}
		})
	}
}
