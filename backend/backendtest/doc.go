// Package backendtest is the conformance suite of ops.Backend: every operation, number format and odd shape, against
// package ref and its float64 arithmetic. A backend's tests call Run.
//
// Buffers are opaque, so the suite writes them with Embed from a float32 table and reads them with Logits against the
// identity matrix; both are exact in float32.
//
// What must not be read is poisoned: table entries past the pages in use name a page that does not exist, and slots
// past KVLen hold NaN, written by an earlier step and cut off by a shorter one.
package backendtest
