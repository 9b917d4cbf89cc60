package main

import (
	"strings"
	"testing"

	"github.com/flashdecode/flashdecode/kernels"
)

func TestReport(t *testing.T) {
	m := &kernels.Manifest{Images: []kernels.Image{
		{Unit: "u", Target: "sm_90a", SHA256: "1"}, {Unit: "u", Target: "sm_80", SHA256: "2"},
	}}
	v := new(kernels.Verified)
	if err := report(m, v); err != nil {
		t.Errorf("no run yet is said, not refused: %v", err)
	}
	r := kernels.Run{Date: "2026-01-31", GPU: "NVIDIA H200", Driver: "580.1", Passed: 1, Images: map[string]string{"u.sm_90a": "1"}}
	if err := v.Enter(m, r); err != nil {
		t.Fatal(err)
	}
	if err := report(m, v); err != nil {
		t.Errorf("a current record: %v", err)
	}
	m.Images[0].SHA256 = "3"
	if err := report(m, v); err == nil || !strings.Contains(err.Error(), "u.sm_90a") {
		t.Errorf("a stale record passes: %v", err)
	}
}
