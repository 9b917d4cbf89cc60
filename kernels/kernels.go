package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

//go:embed bin/*.gz manifest.json verified.json
var files embed.FS

// ErrNoKernel: no image runs on the device, or none that runs there has the function.
var ErrNoKernel = errors.New("kernels: no kernel")

// Capability is a device's compute capability.
type Capability struct{ Major, Minor int }

func (c Capability) String() string { return fmt.Sprintf("sm_%d%d", c.Major, c.Minor) }

// target is the target whose images run on the device: machine code of its own generation if there is some, PTX otherwise.
func (c Capability) target() (string, error) {
	switch {
	case c.Major < 8:
		return "", fmt.Errorf("%w for %v: devices from sm_80 up are supported", ErrNoKernel, c)
	case c.Major == 8:
		return "sm_80", nil
	case c.Major == 9 && c.Minor == 0:
		return "sm_90a", nil
	}
	return "compute_80", nil
}

// Manifest describes all images; see Read.
type Manifest struct {
	Compiler string  `json:"compiler"` // name and build
	Images   []Image `json:"images"`   // by unit, then target
}

// Image is a unit compiled for a target.
type Image struct {
	Unit      string     `json:"unit"`
	Target    string     `json:"target"`
	Source    string     `json:"source"` // SHA-256 of the unit's sources, the flags and the compiler's versions
	SHA256    string     `json:"sha256"` // of the bytes that the driver gets
	Bytes     int        `json:"bytes"`
	Functions []Function `json:"functions"` // by name
}

// Function is an entry point. Numbers are those of machine code: PTX has only names.
type Function struct {
	Name        string `json:"name"`
	Registers   int    `json:"registers,omitempty"`    // of a thread
	SharedBytes int    `json:"shared_bytes,omitempty"` // static
	StackBytes  int    `json:"stack_bytes,omitempty"`  // of a thread, spilled registers included
	ParamBytes  int    `json:"param_bytes,omitempty"`
}

// Read returns the manifest of the embedded images.
func Read() (*Manifest, error) {
	text, err := files.ReadFile("manifest.json")
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("kernels: manifest.json: %w", err)
	}
	return m, nil
}

// Units returns the names of the units that have an image for the device.
func (m *Manifest) Units(c Capability) ([]string, error) {
	target, err := c.target()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, im := range m.Images {
		if im.Target == target {
			names = append(names, im.Unit)
		}
	}
	return names, nil
}

// Image returns the unit's image for the device.
func (m *Manifest) Image(c Capability, unit string) (*Image, error) {
	target, err := c.target()
	if err != nil {
		return nil, err
	}
	for i := range m.Images {
		if im := &m.Images[i]; im.Unit == unit && im.Target == target {
			return im, nil
		}
	}
	return nil, fmt.Errorf("%w: unit %s has no image for %v (%s)", ErrNoKernel, unit, c, target)
}

// Find returns the function of that name for the device, and the image that has it.
func (m *Manifest) Find(c Capability, function string) (*Image, *Function, error) {
	target, err := c.target()
	if err != nil {
		return nil, nil, err
	}
	var elsewhere []string
	for i := range m.Images {
		im := &m.Images[i]
		f := slices.IndexFunc(im.Functions, func(f Function) bool { return f.Name == function })
		switch {
		case f >= 0 && im.Target == target:
			return im, &im.Functions[f], nil
		case f >= 0:
			elsewhere = append(elsewhere, im.Target)
		}
	}
	if elsewhere == nil {
		return nil, nil, fmt.Errorf("%w: nothing is called %s", ErrNoKernel, function)
	}
	return nil, nil, fmt.Errorf("%w: %s is not compiled for %v (%s), only for %s", ErrNoKernel, function, c, target, strings.Join(elsewhere, ", "))
}

// Name is unit and target, the name of the image's file.
func (im *Image) Name() string { return im.Unit + "." + im.Target }

// Load returns the bytes for the driver: machine code, or PTX with the zero byte at its end that the driver looks for.
func (im *Image) Load() ([]byte, error) {
	packed, err := files.ReadFile("bin/" + im.Name() + ".gz")
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", im.Name(), err)
	}
	b := bytes.NewBuffer(make([]byte, 0, im.Bytes+bytes.MinRead))
	if _, err := io.Copy(b, r); err != nil {
		return nil, fmt.Errorf("kernels: %s: %w", im.Name(), err)
	}
	if got := Hash(b.Bytes()); got != im.SHA256 {
		return nil, fmt.Errorf("kernels: %s has hash %s, the manifest says %s: run make kernels", im.Name(), got, im.SHA256)
	}
	if strings.HasPrefix(im.Target, "compute_") {
		b.WriteByte(0)
	}
	return b.Bytes(), nil
}

// Hash is the SHA-256 of an image, as the manifest and verified.json write it.
func Hash(image []byte) string {
	sum := sha256.Sum256(image)
	return hex.EncodeToString(sum[:])
}
