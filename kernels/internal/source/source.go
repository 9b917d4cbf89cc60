// Package source finds what a kernel unit is compiled from, and hashes it: the .cu file, all that it includes by quotes, the flags and
// the compiler's versions.
package source

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// folders, relative to kernels/, whose .cu files are units.
var folders = []string{"attention", "bench", "prim"}

var (
	include = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)"`)
	pinned  = regexp.MustCompile(`(?m)^\s+(nvidia-[a-z0-9-]+==\S+)`)
	flags   = regexp.MustCompile(`(?m)^(NVCCFLAGS|ARCHS)\s*=.*$`)
)

// Units returns the path of each unit's .cu file below root, the kernels folder, by unit.
func Units(root string) (map[string]string, error) {
	units := map[string]string{}
	for _, f := range folders {
		names, err := fs.Glob(os.DirFS(root), f+"/*.cu")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			unit := strings.TrimSuffix(path.Base(n), ".cu")
			if other, twice := units[unit]; twice {
				return nil, fmt.Errorf("source: %s and %s are both called %s", other, n, unit)
			}
			units[unit] = n
		}
	}
	return units, nil
}

// Files returns the unit's file and all that it includes, sorted, below root. Both branches of an #if count.
func Files(root, unit string) ([]string, error) {
	seen := map[string]bool{}
	todo := []string{unit}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if seen[name] || path.Ext(name) != ".cu" && host(name) {
			continue
		}
		seen[name] = true
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		for _, m := range include.FindAllStringSubmatch(string(text), -1) {
			todo = append(todo, path.Join(path.Dir(name), m[1]))
		}
	}
	files := make([]string, 0, len(seen))
	for n := range seen {
		files = append(files, n)
	}
	slices.Sort(files)
	return files, nil
}

// host: the emulator's side of the primitives, which no device image depends on.
func host(name string) bool {
	return strings.HasPrefix(name, "emu/") || name == "prim/cpu.h" || name == "prim/cuda_names.h" || strings.HasSuffix(name, "_cpu.h")
}

// Hash returns the hash of what the unit's images are made from. The bytes that count are those of lines without trailing carriage
// returns, so that a checkout on Windows has the same.
func Hash(root, unit string) (string, error) {
	files, err := Files(root, unit)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", fmt.Errorf("source: %w", err)
		}
		fmt.Fprintf(h, "%s\n%s\n", name, strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	toolchain, err := Toolchain(root)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, strings.Join(toolchain, "\n"))
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Toolchain returns the compiler's pinned packages, from scripts/cuda.sh, and the Makefile's flags.
func Toolchain(root string) ([]string, error) {
	script, err := os.ReadFile(filepath.Join(root, "..", "scripts", "cuda.sh"))
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	var lines []string
	for _, m := range pinned.FindAllStringSubmatch(string(script), -1) {
		lines = append(lines, m[1])
	}
	for _, m := range flags.FindAllString(string(makefile), -1) {
		lines = append(lines, strings.Join(strings.Fields(m), " "))
	}
	if len(lines) < 6 {
		return nil, fmt.Errorf("source: scripts/cuda.sh and kernels/Makefile name only %d packages and flags", len(lines))
	}
	return lines, nil
}
