// Package bench drives a model without an engine: the same steps again and again, with nothing between them that is
// not the model, so that they can be timed, scored or compared.
//
// Terms. A Source is an open model file. A Runner is its weights on the CPU backend. A Cache is the keys and values of
// some sequences, which grow by Prefill and Decode and shrink by Truncate; a depth is their length when a measurement
// begins. A test is what llama-bench calls one: pp N reads a prompt of N tokens, tg N generates N, both at a depth.
// A repetition is one timed run of a test.
//
// Processors share memory with whatever else runs, so two speeds measured a minute apart can't be compared. What is
// to be compared is measured in turns: Run alternates between policies, Attention also with a plain read of as many
// bytes.
package bench
