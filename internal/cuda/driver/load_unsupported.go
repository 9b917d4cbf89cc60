//go:build !linux || !(amd64 || arm64)

package driver

// Load fails: this module knows libcuda on Linux only.
func Load(string) (API, error) { return nil, ErrPlatform }
