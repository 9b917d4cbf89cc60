// Package kernels holds the compiled CUDA kernels and says what is known of them. It only stores: loading and launching is
// backend/cuda's.
//
// A unit is one .cu file. An image is a unit compiled for one target: sm_80 and sm_90a are machine code, compute_80 is PTX, which the
// driver compiles for devices that came later. A function is an entry point of an image; not every function is in every image,
// because some need what only sm_90 has. The manifest lists all images with their hashes, and each function's registers,
// static shared memory, stack and parameter bytes. verified.json lists the runs on real devices, and which images each of them tested.
//
// Sources, Makefile and emulator lie in the folders beside this file; docs/kernels.md says how to build, test and add kernels.
package kernels
