// Package abi is what goes between host and kernels: the kernels' argument blocks, field by field as the headers under
// kernels/attention declare them, and the launch arithmetic that both sides do. A test compares sizes, offsets and results
// with what a C++ compiler makes of the headers. Addresses are device addresses.
package abi
