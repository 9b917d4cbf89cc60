package chat

import (
	"encoding/json"
	"os"
	"testing"

	_ "github.com/ardanlabs/jinja" // the published templates among the goldens are in its testdata: keeps it in go.mod
)

// TestAgainstJinja has what Jinja itself makes of small templates, written by scripts/golden_jinja.py.
func TestAgainstJinja(t *testing.T) {
	data, err := os.ReadFile("testdata/jinja.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens []struct{ Template, Text, Error string }
	if err := json.Unmarshal(data, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) < 250 {
		t.Errorf("%d goldens", len(goldens))
	}
	for _, g := range goldens {
		got, err := Render(g.Template, nil, Options{})
		if (err != nil) != (g.Error != "") || got != g.Text {
			t.Errorf("%s: %q, %v, want %q %s", g.Template, got, err, g.Text, g.Error)
		}
	}
}
