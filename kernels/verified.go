package kernels

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Verified is what verified.json holds: the latest device runs whose images are still the embedded ones.
type Verified struct {
	Runs []Run `json:"runs"`
}

// Run is a run of the device test suite. The suite writes one as JSON; go run ./kernels/internal/verify enters it into verified.json.
type Run struct {
	Date    string            `json:"date"` // day, as 2026-01-31
	GPU     string            `json:"gpu"`
	Driver  string            `json:"driver"`
	Passed  int               `json:"passed"`
	Failed  int               `json:"failed"`
	Skipped int               `json:"skipped"`
	Images  map[string]string `json:"images"` // those that were loaded and whose functions ran: Image.Name to SHA256
}

// ReadVerified returns the embedded record.
func ReadVerified() (*Verified, error) {
	text, err := files.ReadFile("verified.json")
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	v := new(Verified)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("kernels: verified.json: %w", err)
	}
	return v, nil
}

// Has reports whether a run without failures tested exactly this image.
func (v *Verified) Has(im *Image) bool {
	return slices.ContainsFunc(v.Runs, func(r Run) bool {
		return r.Failed == 0 && r.Passed > 0 && r.Images[im.Name()] == im.SHA256
	})
}

// Missing returns the names of the images for a target that no run has tested.
func (v *Verified) Missing(m *Manifest, target string) []string {
	var names []string
	for i := range m.Images {
		if im := &m.Images[i]; im.Target == target && !v.Has(im) {
			names = append(names, im.Name())
		}
	}
	return names
}

// Enter adds a run, and drops the older ones that have nothing left to say. It refuses runs that failed or tested other images.
func (v *Verified) Enter(m *Manifest, r Run) error {
	if r.Date == "" || r.GPU == "" || r.Driver == "" || len(r.Images) == 0 {
		return fmt.Errorf("kernels: the run lacks date, gpu, driver or images: %+v", r)
	}
	if r.Failed != 0 || r.Passed == 0 {
		return fmt.Errorf("kernels: the run has %d passed and %d failed tests: only a run without failures counts", r.Passed, r.Failed)
	}
	current := map[string]string{}
	for i := range m.Images {
		current[m.Images[i].Name()] = m.Images[i].SHA256
	}
	for name, hash := range r.Images {
		if current[name] != hash {
			return fmt.Errorf("kernels: the run tested another %s (%.12s…) than the embedded one (%.12s…)", name, hash, current[name])
		}
	}
	old := v.Runs
	v.Runs = []Run{r}
	for _, o := range old {
		still := slices.ContainsFunc(m.Images, func(im Image) bool {
			return o.Images[im.Name()] == im.SHA256 && !v.Has(&im)
		})
		if still {
			v.Runs = append(v.Runs, o)
		}
	}
	return nil
}

// String is one line a run.
func (v *Verified) String() string {
	var lines []string
	for _, r := range v.Runs {
		lines = append(lines, fmt.Sprintf("%s: %s, driver %s: %d tests passed, %d skipped, %d images", r.Date, r.GPU, r.Driver, r.Passed, r.Skipped, len(r.Images)))
	}
	return strings.Join(lines, "\n")
}
