package flat

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is the physical memory of a KV cache. Its methods and those of its ranges may be called concurrently;
// the bytes themselves are the caller's to synchronise.
type Arena struct {
	pages     int
	pageBytes int
	advise    bool // ask for huge pages in every mapping: the system gives them on request

	mu          sync.Mutex
	fd          int            // -1 once closed
	base        unsafe.Pointer // all pages in order
	ranges      map[*Range]struct{}
	mappings    int
	maxMappings int
}

// New makes an arena. pageBytes must be a multiple of the system's page size. The memory is zero, and takes up
// no room until it is touched.
func New(pages, pageBytes int) (*Arena, error) {
	if pages < 1 || pages > math.MaxInt32-1 {
		return nil, fmt.Errorf("flat: %d pages: want 1 to %d", pages, math.MaxInt32-1)
	}
	sys := os.Getpagesize()
	if pageBytes < sys || pageBytes%sys != 0 {
		return nil, fmt.Errorf("flat: page of %d bytes: want a multiple of the system's page size, %d", pageBytes, sys)
	}
	if pageBytes > math.MaxInt/pages {
		return nil, fmt.Errorf("flat: %d pages of %d bytes are more than can be addressed", pages, pageBytes)
	}
	fd, err := memoryFile(int64(pages) * int64(pageBytes))
	if err != nil {
		return nil, err
	}
	a := &Arena{pages: pages, pageBytes: pageBytes, fd: fd, ranges: map[*Range]struct{}{}, mappings: 1}
	a.advise = shmemAdvise()
	// The kernel's limit counts the whole process: leave an eighth for the Go heap, files and libraries.
	a.maxMappings = maxMapCount() / 8 * 7
	a.base, err = unix.MmapPtr(fd, 0, nil, uintptr(pages*pageBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("flat: map %d pages of %d bytes: %w", pages, pageBytes, err)
	}
	a.adviseHuge(a.base, uintptr(pages*pageBytes))
	return a, nil
}

// memoryFile makes a file without a name that lives in memory. Its size is sealed: a file that shrank
// under its mappings would turn reads into SIGBUS.
func memoryFile(size int64) (int, error) {
	fd, err := unix.MemfdCreate("flashdecode-kv", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("flashdecode-kv", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if errors.Is(err, unix.ENOSYS) {
		return -1, fmt.Errorf("%w: memfd_create: %w", ErrUnsupported, err)
	}
	if err != nil {
		return -1, fmt.Errorf("flat: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("flat: memory file of %d bytes: %w", size, err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("flat: seal memory file: %w", err)
	}
	return fd, nil
}

// maxMapCount is the kernel's limit of mappings per process, or its default where it can't be read.
func maxMapCount() int {
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 {
			return n
		}
	}
	return 65530
}

func shmemAdvise() bool {
	b, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	return strings.Contains(string(b), "[advise]")
}

func (a *Arena) adviseHuge(at unsafe.Pointer, n uintptr) {
	if a.advise { // a hint: without huge pages everything works, slower
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(at), n, unix.MADV_HUGEPAGE)
	}
}

// Pages is the number of pages.
func (a *Arena) Pages() int { return a.pages }

// PageBytes is the size of a page.
func (a *Arena) PageBytes() int { return a.pageBytes }

// Bytes is all of the arena, page 0 first, as block tables address it. It must not be touched after Close.
func (a *Arena) Bytes() []byte { return unsafe.Slice((*byte)(a.base), a.pages*a.pageBytes) }

// Mappings is an upper bound of the mappings in use.
func (a *Arena) Mappings() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mappings
}

// Resident is the number of bytes of physical memory that the arena takes up.
func (a *Arena) Resident() (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return 0, ErrClosed
	}
	var st unix.Stat_t
	if err := unix.Fstat(a.fd, &st); err != nil {
		return 0, fmt.Errorf("flat: fstat: %w", err)
	}
	return int64(st.Blocks) * 512, nil
}

// Discard gives the memory of n pages back to the system. They may stay mapped, and read as zero.
func (a *Arena) Discard(page int32, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return ErrClosed
	}
	if page < 0 || n < 0 || int(page) > a.pages || n > a.pages-int(page) {
		return fmt.Errorf("flat: discard pages [%d, %d): the arena has %d", page, int(page)+n, a.pages)
	}
	if n == 0 {
		return nil
	}
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	size := int64(a.pageBytes)
	if err := unix.Fallocate(a.fd, mode, int64(page)*size, int64(n)*size); err != nil {
		return fmt.Errorf("flat: discard %d pages at %d: %w", n, page, err)
	}
	return nil
}

// Close returns all memory and address space, that of the ranges too. A second Close does nothing.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 {
		return nil
	}
	var errs []error
	for r := range a.ranges {
		errs = append(errs, r.release())
	}
	errs = append(errs, unix.MunmapPtr(a.base, uintptr(a.pages*a.pageBytes)), unix.Close(a.fd))
	a.fd, a.base, a.mappings = -1, nil, 0
	return errors.Join(errs...)
}
