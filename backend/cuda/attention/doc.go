// Package attention is decode attention on NVIDIA GPUs for builders of engines: device pointers in, device pointers
// out, on a stream of the caller's. It owns no memory besides its code and plans nothing behind the caller's back.
//
// # Terms
//
//   - A [Config] is a shape and capacities. [Kernels.Plan] turns it into a [Plan], which knows its kernels, how
//     they are launched and how many bytes of workspace they need, from the capacities alone.
//   - A [Step] is what the layers of one forward pass share: lengths, tables, query offsets. [Plan.Begin] takes it.
//   - A [Layer] is what differs between them: [Plan.Run] attends.
//   - A workspace is device memory of Plan.WorkspaceBytes bytes. One stream at a time may use it: CTAs exchange
//     partial States through it. [Plan.Reset] makes it ready, once, and again after a launch that failed.
//
// # Life
//
//	ks, err := attention.Load(ctx)                  // once a device
//	p, err := ks.Plan(attention.Config{…})          // once a shape
//	err = p.Bind(workspace, bytes)                  // device memory of at least p.WorkspaceBytes()
//	err = p.Reset(stream)
//	for each step {
//		err = p.Begin(stream, &step)
//		for each layer { err = p.Run(stream, &layer) }
//	}
//
// Begin and Run allocate nothing and wait for nothing, and may be captured in a graph. A captured graph replays at
// any lengths up to the capacities, because kernels read them from device memory; what was chosen by a length that
// the host knew at capture time (Step.Lens) stays correct for any other.
//
// # Results
//
// Output rows of sequences without tokens are exactly 0 and their LSE is -Inf. LSE is the natural log of the
// denominator, sinks included. Nothing past a sequence's length is read. The same call gives the same bits each time;
// with plan.Fixed a sequence's bits don't depend on what else is in the batch either.
package attention
