package host

import (
	"strconv"
	"strings"

	"github.com/flashdecode/flashdecode/internal/mem"
)

// Memory is the machine's memory.
type Memory struct {
	TotalBytes     int64  `json:"total_bytes"`
	AvailableBytes int64  `json:"available_bytes"`
	LimitBytes     int64  `json:"limit_bytes,omitempty"` // of the control group; 0: none
	HugePages      string `json:"huge_pages,omitempty"`  // transparent huge pages: always, madvise or never
	FileHugePages  string `json:"file_huge_pages,omitempty"`
}

// Mem describes the memory.
func Mem() Memory {
	return Memory{
		TotalBytes:     mem.Physical(),
		AvailableBytes: kilobytes(field(readFile("/proc/meminfo"), "MemAvailable")),
		LimitBytes:     limit(readFile("/sys/fs/cgroup/memory.max")),
		HugePages:      chosen(readFile("/sys/kernel/mm/transparent_hugepage/enabled")),
		FileHugePages:  chosen(readFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
	}
}

// kilobytes reads "16384 kB".
func kilobytes(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// limit reads memory.max, which says max for none.
func limit(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// chosen is the word in brackets of "always [madvise] never".
func chosen(s string) string {
	_, s, _ = strings.Cut(s, "[")
	s, _, _ = strings.Cut(s, "]")
	return s
}
