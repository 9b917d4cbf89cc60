package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/flashdecode/flashdecode/internal/simd"
	"github.com/spf13/cobra"
)

// build says what this program is.
type build struct {
	Version      string `json:"version"`
	Commit       string `json:"commit,omitempty"`
	Modified     bool   `json:"modified,omitempty"`
	Go           string `json:"go"`
	Platform     string `json:"platform"`
	Instructions string `json:"instructions"`
}

func buildInfo() build {
	b := build{
		Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Instructions: simd.Detect().String(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version = info.Main.Version; b.Version == "" {
		b.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print version, commit and instruction set",
		Example: "  flashdecode version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := buildInfo()
			if asJSON {
				return a.printJSON(b)
			}
			text := fmt.Sprintf("flashdecode %s\n", b.Version)
			if b.Commit != "" {
				text += "commit " + b.Commit
				if b.Modified {
					text += " with changes"
				}
				text += "\n"
			}
			return a.print(text + fmt.Sprintf("%s %s, %s instructions\n", b.Go, b.Platform, b.Instructions))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
