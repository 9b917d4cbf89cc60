package chat

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// TestAgainstJinja has what Jinja itself makes of small templates, written by scripts/golden_jinja.py, and what is known to
// come out otherwise: deviations.json has the text that the library makes instead, "refused" for what is not evaluated and
// "fails" for what the library does not know. No published template among the goldens of transformers depends on one.
func TestAgainstJinja(t *testing.T) {
	var goldens []struct{ Template, Text, Error string }
	var deviations []struct{ Template, Text, Outcome string }
	readJSON(t, "testdata/jinja.json", &goldens)
	readJSON(t, "testdata/deviations.json", &deviations)
	type outcome struct{ text, how string }
	known := map[string]outcome{}
	for _, d := range deviations {
		known[d.Template] = outcome{d.Text, d.Outcome}
	}
	if len(goldens) < 250 || len(known) > 110 {
		t.Errorf("%d goldens, %d deviations", len(goldens), len(known))
	}
	for _, g := range goldens {
		text, err := Render(g.Template, nil, Options{})
		got, want := outcome{text, ""}, outcome{g.Text, ""}
		switch {
		case errors.Is(err, ErrRefused):
			got.how = "refused"
		case err != nil:
			got.how = "fails"
		}
		if g.Error != "" {
			want.how = "fails"
		}
		same := got.text == want.text && (got.how == "") == (want.how == "")
		d, deviates := known[g.Template]
		delete(known, g.Template)
		switch {
		case deviates && same:
			t.Errorf("%s: as Jinja, but among the deviations", g.Template)
		case deviates && got != d:
			t.Errorf("%s: %q %v, want the deviation %q", g.Template, got, err, d)
		case !deviates && !same:
			t.Errorf("%s: %q %v, want %q %s", g.Template, got, err, want, g.Error)
		}
	}
	for template := range known {
		t.Errorf("%s: a deviation from no golden", template)
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
