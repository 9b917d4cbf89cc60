//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

func isTerminal(fd uintptr) bool {
	_, err := unix.IoctlGetTermios(int(fd), termios)
	return err == nil
}
