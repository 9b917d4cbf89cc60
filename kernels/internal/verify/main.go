// Command verify keeps kernels/verified.json, the record of device runs.
//
//	go run ./kernels/internal/verify              fails if an image for sm_90a has changed since it was last run on a device
//	go run ./kernels/internal/verify -enter FILE  enters the run that the device test suite wrote to FILE (a kernels.Run as JSON)
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/flashdecode/flashdecode/kernels"
)

// required is the target that must have run. compute_80 and sm_80 are compiled from the same sources without the sm_90 parts; they are
// reported if nobody ran them, but machines for them are not at hand.
const required = "sm_90a"

func main() {
	enter := flag.String("enter", "", "file with the run to enter")
	record := flag.String("record", "kernels/verified.json", "the record")
	flag.Parse()
	if err := run(*enter, *record); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(enter, record string) error {
	m, err := kernels.Read()
	if err != nil {
		return err
	}
	v, err := kernels.ReadVerified()
	if err != nil {
		return err
	}
	if enter == "" {
		return report(m, v)
	}
	text, err := os.ReadFile(enter)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	var r kernels.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("verify: %s: %w", enter, err)
	}
	if err := v.Enter(m, r); err != nil {
		return err
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(record, append(b, '\n'), 0o666); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return report(m, v)
}

func report(m *kernels.Manifest, v *kernels.Verified) error {
	if len(v.Runs) == 0 {
		fmt.Println("verify: kernels/verified.json holds no device run yet: these kernels are known from the emulator only")
		return nil
	}
	fmt.Println(v)
	for _, target := range []string{"sm_80", "compute_80"} {
		if missing := v.Missing(m, target); len(missing) > 0 {
			fmt.Printf("verify: no device has run %d images for %s\n", len(missing), target)
		}
	}
	if missing := v.Missing(m, required); len(missing) > 0 {
		return fmt.Errorf("verify: changed since the last device run: %s\nrun the device tests and enter their record (docs/kernels.md)", strings.Join(missing, ", "))
	}
	fmt.Printf("verify: every image for %s has run on a device as it is\n", required)
	return nil
}
