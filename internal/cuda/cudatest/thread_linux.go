package cudatest

import "syscall"

func thread() int { return syscall.Gettid() }
