// Command pack turns the compiler's output in kernels/build into what the package kernels embeds: bin/*.gz and manifest.json. It runs in
// kernels/, from the Makefile. With -check it writes nothing and fails if what is embedded differs from the output by a byte.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/flashdecode/flashdecode/kernels"
	"github.com/flashdecode/flashdecode/kernels/internal/source"
)

var targets = []string{"compute_80", "sm_80", "sm_90a"}

func main() {
	check := flag.Bool("check", false, "compare with what is embedded instead of writing it")
	tools := flag.String("cuda", "../.cuda/nvidia/cu13/bin", "folder of nvcc and cuobjdump")
	flag.Parse()
	if err := run(*check, *tools); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool, tools string) error {
	m := new(kernels.Manifest)
	out, err := exec.Command(filepath.Join(tools, "nvcc"), "--version").Output()
	if err != nil {
		return fmt.Errorf("pack: nvcc --version: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	m.Compiler = "nvcc, " + lines[len(lines)-1]
	images := map[string][]byte{}
	units, err := source.Units(".")
	if err != nil {
		return err
	}
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		hash, err := source.Hash(".", units[unit])
		if err != nil {
			return err
		}
		for _, target := range targets {
			im := kernels.Image{Unit: unit, Target: target, Source: hash}
			b, err := describe(&im, tools)
			if err != nil {
				return err
			}
			images[im.Name()] = b
			m.Images = append(m.Images, im)
		}
	}
	if check {
		return compare(m, images)
	}
	return write(m, images, tools)
}

// describe reads the image from build/ and enters its hash and functions.
func describe(im *kernels.Image, tools string) ([]byte, error) {
	name := filepath.Join("build", im.Name())
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("pack: %w: run make", err)
	}
	im.SHA256, im.Bytes = kernels.Hash(b), len(b)
	if im.Target == "compute_80" {
		im.Functions = entries(b)
	} else {
		out, err := exec.Command(filepath.Join(tools, "cuobjdump"), "--dump-resource-usage", name).Output()
		if err != nil {
			return nil, fmt.Errorf("pack: cuobjdump %s: %w", name, err)
		}
		im.Functions, err = resources(out, im.Target)
		if err != nil {
			return nil, fmt.Errorf("pack: %s: %w", name, err)
		}
	}
	slices.SortFunc(im.Functions, func(a, b kernels.Function) int { return strings.Compare(a.Name, b.Name) })
	return b, nil
}

var entry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)`)

func entries(ptx []byte) (all []kernels.Function) {
	for _, m := range entry.FindAllSubmatch(ptx, -1) {
		all = append(all, kernels.Function{Name: string(m[1])})
	}
	return all
}

var usage = regexp.MustCompile(`Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+) (?:CONSTANT\[\d+\]:\d+ )*?CONSTANT\[0\]:(\d+)`)

// reserved is what a block's shared memory, and the constant bank that holds the parameters, begin with on each target.
var reserved = map[string]struct{ shared, constant int }{"sm_80": {0, 0x160}, "sm_90a": {1024, 0x210}}

// resources reads what cuobjdump prints. LOCAL is the same as STACK, or a kernel has an array that lives in memory: both are spoken of as stack.
func resources(text []byte, target string) (all []kernels.Function, err error) {
	for _, m := range usage.FindAllSubmatch(text, -1) {
		var n [5]int
		for i := range n {
			if n[i], err = strconv.Atoi(string(m[i+2])); err != nil {
				return nil, err
			}
		}
		r := reserved[target]
		all = append(all, kernels.Function{
			Name: string(m[1]), Registers: n[0], StackBytes: n[1] + n[3],
			SharedBytes: max(0, n[2]-r.shared), ParamBytes: n[4] - r.constant,
		})
	}
	if want := bytes.Count(text, []byte("\n Function ")); want != len(all) {
		return nil, fmt.Errorf("%d of %d functions understood", len(all), want)
	}
	return all, nil
}

func encode(m *kernels.Manifest) ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	// A function a line: a change of registers is then one line of a diff.
	b = regexp.MustCompile(`\n {4}\{\n\s+([^{}]*?)\n {4}\}`).ReplaceAllFunc(b, func(f []byte) []byte {
		return append([]byte("\n    "), bytes.Join(bytes.Fields(f), []byte(" "))...)
	})
	return append(b, '\n'), nil
}

// descriptor matches a memory descriptor in a register pair that starts at an odd number, which there is not: see cp_async16 in prim/gpu.cuh.
var descriptor = regexp.MustCompile(`\w[^;\n]*desc\[UR\d*[13579]\][^;\n]*`)

// legal refuses machine code that the device would refuse. tools "" skips it.
func legal(name, tools string) error {
	if tools == "" || !strings.Contains(name, ".sm_") {
		return nil
	}
	out, err := exec.Command(filepath.Join(tools, "nvdisasm"), "-c", filepath.Join("build", name)).Output()
	if err != nil {
		return fmt.Errorf("pack: nvdisasm %s: %w", name, err)
	}
	if bad := descriptor.Find(out); bad != nil {
		return fmt.Errorf("pack: %s has an illegal instruction, %s: prim/gpu.cuh says at cp_async16 where it comes from", name, bad)
	}
	return nil
}

func write(m *kernels.Manifest, images map[string][]byte, tools string) error {
	embedded := stored()
	if err := os.MkdirAll("bin", 0o777); err != nil {
		return err
	}
	total := 0
	for name, b := range images {
		file := filepath.Join("bin", name+".gz")
		// An image that has not changed keeps its file, whatever this Go's gzip would make of it.
		if got, ok := embedded[name]; !ok || !bytes.Equal(got, b) {
			if err := legal(name, tools); err != nil {
				return err
			}
			if err := os.WriteFile(file, compress(b), 0o666); err != nil {
				return err
			}
		}
		delete(embedded, name)
		if st, err := os.Stat(file); err == nil {
			total += int(st.Size())
		}
	}
	for name := range embedded {
		if err := os.Remove(filepath.Join("bin", name+".gz")); err != nil {
			return err
		}
	}
	text, err := encode(m)
	if err != nil {
		return err
	}
	fmt.Printf("pack: %d images, %d KB\n", len(images), total>>10)
	return os.WriteFile("manifest.json", text, 0o666)
}

func compress(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// stored returns the unpacked images of bin/; one that cannot be unpacked is nil.
func stored() map[string][]byte {
	all := map[string][]byte{}
	names, _ := filepath.Glob("bin/*.gz")
	for _, n := range names {
		key := strings.TrimSuffix(filepath.Base(n), ".gz")
		all[key] = nil
		if packed, err := os.ReadFile(n); err == nil {
			if r, err := gzip.NewReader(bytes.NewReader(packed)); err == nil {
				var b bytes.Buffer
				if _, err := b.ReadFrom(r); err == nil {
					all[key] = b.Bytes()
				}
			}
		}
	}
	return all
}

func compare(m *kernels.Manifest, images map[string][]byte) error {
	embedded, bad := stored(), 0
	for _, name := range slices.Sorted(maps.Keys(images)) {
		if got, ok := embedded[name]; !ok || !bytes.Equal(got, images[name]) {
			fmt.Printf("pack: bin/%s.gz is not what the sources compile to\n", name)
			bad++
		}
		delete(embedded, name)
	}
	for name := range embedded {
		fmt.Printf("pack: bin/%s.gz has no source\n", name)
		bad++
	}
	want, err := encode(m)
	if err != nil {
		return err
	}
	if got, err := os.ReadFile("manifest.json"); err != nil || !bytes.Equal(got, want) {
		fmt.Println("pack: manifest.json differs")
		bad++
	}
	fmt.Printf("pack: %d images compared, %d differences\n", len(images), bad)
	if bad > 0 {
		return fmt.Errorf("pack: run make kernels and commit kernels/bin and kernels/manifest.json")
	}
	return nil
}
