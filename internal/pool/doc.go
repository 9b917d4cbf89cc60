// Package pool runs parallel regions on a few persistent workers.
//
// A decode step is some hundred regions of a few microseconds each, so starting one must cost well under a
// microsecond. A region is a Task of numbered chunks; whoever comes claims the next chunk from one atomic word. The
// caller works too and waits only for chunks that somebody has claimed: a worker that the system has descheduled, or
// that has not woken yet, delays nothing. Workers spin while a step runs (Begin to End), keep spinning for a moment
// after it, then park.
package pool
