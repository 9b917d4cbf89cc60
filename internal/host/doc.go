// Package host describes the machine: its processor, memory and GPUs, as far as files tell. It loads no driver and
// starts nothing. What a system does not tell is empty or 0.
package host
