// The primitives that need sm_90: clusters, mbarriers with transaction counts, stores and bulk copies that complete on one,
// and programmatic dependent launch. The sm_80 image has none of them, so a kernel that uses one must be inside
// '#if FD_SM90' as a whole: what is missing is then a missing symbol, not a kernel that traps.
#pragma once

namespace fd {

// ---- clusters. The shared::cta address of one's own block is a valid shared::cluster address.

DEV uint32_t cluster_rank() { uint32_t r; asm volatile("mov.u32 %0,%cluster_ctarank;" : "=r"(r)); return r; }
DEV uint32_t cluster_size() { uint32_t r; asm volatile("mov.u32 %0,%cluster_nctarank;" : "=r"(r)); return r; }
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEV uint32_t cluster_addr(uint32_t a, uint32_t rank) { uint32_t r; asm volatile("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(r) : "r"(a), "r"(rank)); return r; }
DEV uint32_t ld_cluster1(uint32_t a) { uint32_t v; asm volatile("ld.shared::cluster.u32 %0,[%1];" : "=r"(v) : "r"(a) : "memory"); return v; }
DEV uint4 ld_cluster4(uint32_t a) {
  uint4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a) : "memory");
  return v;
}
DEV void st_cluster4(uint32_t a, float4 v) { asm volatile("st.shared::cluster.v4.f32 [%0],{%1,%2,%3,%4};" ::"r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }

// ---- mbarrier: 8 bytes of shared memory, 8-byte aligned. A phase ends when the arrivals of init and all announced bytes are in.

DEV void mbar_init(uint32_t bar, uint32_t arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(bar), "r"(arrivals) : "memory"); }
DEV void mbar_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }   // init before other blocks use it
DEV void mbar_inval(uint32_t bar) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory"); }
DEV void mbar_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(bar) : "memory"); }
DEV void mbar_arrive_expect(uint32_t bar, uint32_t bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(bar), "r"(bytes) : "memory"); }
DEV void mbar_arrive_cluster(uint32_t cluster_bar) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _,[%0];" ::"r"(cluster_bar) : "memory"); }
// mbar_test: has the phase of this parity ended? The first phase has parity 0.
DEV bool mbar_test(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}" : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
  return ok;
}
DEV void mbar_wait(uint32_t bar, uint32_t parity) { while (!mbar_test(bar, parity)) {} }
// cp_arrive: arrives (without counting in init's arrivals: noinc) when this thread's earlier cp.async have landed.
DEV void cp_arrive_noinc(uint32_t bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory"); }

// ---- stores into another block's shared memory that complete on an mbarrier there

DEV void st_async1(uint32_t a, float x, uint32_t bar) { asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0],%1,[%2];" ::"r"(a), "f"(x), "r"(bar) : "memory"); }
DEV void st_async2(uint32_t a, float x, float y, uint32_t bar) { asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0],{%1,%2},[%3];" ::"r"(a), "f"(x), "f"(y), "r"(bar) : "memory"); }
DEV void st_async4(uint32_t a, float4 v, uint32_t bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0],{%1,%2,%3,%4},[%5];" ::"r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(bar) : "memory");
}

// ---- bulk copies: bytes, dst and src are multiples of 16; complete on an mbarrier of this block

DEV void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}
DEV void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0],[%1],%2,[%3],%4;" ::"r"(dst), "l"(src), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}
DEV void bulk_prefetch(const void* src, uint32_t bytes) { asm volatile("cp.async.bulk.prefetch.L2.global [%0],%1;" ::"l"(src), "r"(bytes)); }
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }   // plain accesses before bulk ones of the same bytes

// ---- programmatic dependent launch. pdl_launch: the next kernel's blocks may start once every block has said so (or ended).
// pdl_wait: the kernels before this one have ended and what they wrote is visible. Both are no-ops in a plain launch.

DEV void pdl_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
DEV void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <int N> DEV void registers_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> DEV void registers_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

}  // namespace fd
