package mem

import "golang.org/x/sys/unix"

// Physical is the machine's memory in bytes, 0 if unknown.
func Physical() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(uint64(i.Totalram) * uint64(i.Unit))
}
