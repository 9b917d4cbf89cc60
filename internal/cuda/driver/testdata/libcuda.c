// A libcuda that only writes down what it was called with, so that the test of package driver can compare the C side
// of every call with the Go side. Where a toolkit's cuda.h is at hand (-DCUDA_H), it is included: a definition below
// that isn't the function it says it is doesn't compile. Without it, the few types below stand in.
//
// Outputs are numbers that tell where they come from. -DVERSION sets the driver's version, -DINIT the result of
// cuInit, -DWITHOUT leaves newer functions out.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef CUDA_H
#include <cuda.h>
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUmemAllocationGranularity_flags;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle, cuuint64_t;
typedef struct ctx *CUcontext;
typedef struct str *CUstream;
typedef struct evt *CUevent;
typedef struct mod *CUmodule;
typedef struct fun *CUfunction;
typedef struct gra *CUgraph;
typedef struct exe *CUgraphExec;
typedef struct nod *CUgraphNode;
typedef struct { char bytes[16]; } CUuuid;
typedef struct {
  int id;
  char pad[4];
  union { char pad[64]; int cooperative; struct { unsigned x, y, z; } clusterDim; int programmaticStreamSerializationAllowed; } value;
} CUlaunchAttribute;
typedef struct {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct { unsigned char compressionType, gpuDirectRDMACapable; unsigned short usage; unsigned char reserved[4]; } allocFlags;
} CUmemAllocationProp;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
enum { CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDeviceGetUuid cuDeviceGetUuid_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuModuleGetGlobal cuModuleGetGlobal_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2
#endif
#undef cuEventElapsedTime // the header of CUDA 13 makes it _v2, which older drivers lack; both take the same

#ifndef VERSION
#define VERSION 13000
#endif
#ifndef INIT
#define INIT 0
#endif

static char last[64];
static uint64_t args[32];
static int count;

static CUresult note(const char *name, int n, const uint64_t *a) {
  strncpy(last, name, sizeof last - 1);
  count = n;
  memcpy(args, a, n * sizeof *a);
  return (CUresult)0;
}
#define U(x) (uint64_t)(uintptr_t)(x)
#define I(x) (uint64_t)(int64_t)(x)
#define NOTE(...) note(__func__, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]){__VA_ARGS__})

// What the test reads.
int fd_last(char *name, uint64_t *a) {
  strcpy(name, last);
  memcpy(a, args, sizeof args);
  return count;
}

static char memory[1 << 16]; // "page-locked"

CUresult cuInit(unsigned flags) { NOTE(flags); return (CUresult)INIT; }
CUresult cuDriverGetVersion(int *v) { *v = VERSION; return NOTE(0); }
CUresult cuDeviceGetCount(int *n) { *n = 1; return NOTE(0); }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = i + 5; return NOTE(I(i)); }
CUresult cuDeviceGetName(char *name, int len, CUdevice d) { strncpy(name, "recorder", len); return NOTE(I(len), I(d)); }
CUresult cuDeviceTotalMem(size_t *n, CUdevice d) { *n = 0x123456789aull; return NOTE(I(d)); }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) { *v = 1000 + a; return NOTE(I(a), I(d)); }
CUresult cuDeviceGetUuid(CUuuid *u, CUdevice d) { memcpy(u->bytes, "0123456789abcdef", 16); return NOTE(I(d)); }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)0xc0ffee00c0ull; return NOTE(I(d)); }
CUresult cuDevicePrimaryCtxRelease(CUdevice d) { return NOTE(I(d)); }
CUresult cuCtxSetCurrent(CUcontext c) { return NOTE(U(c)); }
CUresult cuCtxGetStreamPriorityRange(int *l, int *g) { *l = 0; *g = -5; return NOTE(0); }

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned f, int p) { *s = (CUstream)0x5100000001ull; return NOTE(f, I(p)); }
CUresult cuStreamDestroy(CUstream s) { return NOTE(U(s)); }
CUresult cuStreamSynchronize(CUstream s) { return NOTE(U(s)); }
CUresult cuStreamQuery(CUstream s) { return NOTE(U(s)); }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned f) { return NOTE(U(s), U(e), f); }
CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode m) { return NOTE(U(s), I(m)); }
CUresult cuStreamEndCapture(CUstream s, CUgraph *g) { *g = (CUgraph)0x6100000001ull; return NOTE(U(s)); }
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st) { *st = (CUstreamCaptureStatus)(U(s) >> 32 == 1 ? 2 : 0); return NOTE(U(s)); }
CUresult cuEventCreate(CUevent *e, unsigned f) { *e = (CUevent)0x7100000001ull; return NOTE(f); }
CUresult cuEventDestroy(CUevent e) { return NOTE(U(e)); }
CUresult cuEventRecord(CUevent e, CUstream s) { return NOTE(U(e), U(s)); }
CUresult cuEventSynchronize(CUevent e) { return NOTE(U(e)); }
CUresult cuEventQuery(CUevent e) { return NOTE(U(e)); }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { *ms = 1.5f; return NOTE(U(a), U(b)); }

CUresult cuModuleLoadDataEx(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **v) {
  *m = (CUmodule)0x8100000001ull;
  if (n == 2) strcpy((char *)v[0], "a complaint");
  return NOTE(strlen(image), n, n ? I(o[0]) : 0, n ? I(o[1]) : 0, n ? U(v[1]) : 0);
}
CUresult cuModuleUnload(CUmodule m) { return NOTE(U(m)); }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  *f = (CUfunction)0x9100000001ull;
  return NOTE(U(m), strlen(name), name[0]);
}
CUresult cuModuleGetGlobal(CUdeviceptr *p, size_t *n, CUmodule m, const char *name) {
  *p = 0xa100000001ull;
  *n = 0xb100000001ull;
  return NOTE(U(m), strlen(name), name[0]);
}
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { *v = 2000 + a; return NOTE(I(a), U(f)); }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return NOTE(U(f), I(a), I(v)); }
#ifndef WITHOUT
CUresult cuFuncGetParamInfo(CUfunction f, size_t i, size_t *off, size_t *size) {
  *off = 0xc100000001ull;
  *size = 40;
  NOTE(U(f), i);
  return (CUresult)(i == 0 ? 0 : 1);
}
CUresult cuFuncLoad(CUfunction f) { return NOTE(U(f)); }
#endif
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int b, size_t s) { *n = 3; return NOTE(U(f), I(b), s); }

static CUresult config(const char *name, CUfunction f, const CUlaunchConfig *c, uint64_t more) {
  uint64_t a[20] = {U(f), c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                    c->sharedMemBytes, U(c->hStream), c->numAttrs};
  int n = 10;
  for (unsigned i = 0; i < c->numAttrs; i++) {
    const CUlaunchAttribute *t = &c->attrs[i];
    a[n++] = t->id;
    if (t->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      a[n++] = t->value.clusterDim.x;
      a[n++] = t->value.clusterDim.y;
      a[n++] = t->value.clusterDim.z;
    } else {
      a[n++] = t->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ? I(t->value.cooperative) : I(t->value.programmaticStreamSerializationAllowed);
    }
  }
  a[n++] = more;
  return note(name, n, a);
}
CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *c) { *n = 4; return config(__func__, f, c, 0); }
CUresult cuOccupancyMaxPotentialClusterSize(int *n, CUfunction f, const CUlaunchConfig *c) { *n = 16; return config(__func__, f, c, 0); }
#ifndef WITHOUT
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  return config(__func__, f, c, extra ? 999 : *(uint64_t *)params[0] + *(uint32_t *)params[1]);
}
#endif

CUresult cuGraphInstantiateWithFlags(CUgraphExec *e, CUgraph g, unsigned long long f) { *e = (CUgraphExec)0xd100000001ull; return NOTE(U(g), f); }
CUresult cuGraphUpload(CUgraphExec e, CUstream s) { return NOTE(U(e), U(s)); }
CUresult cuGraphLaunch(CUgraphExec e, CUstream s) { return NOTE(U(e), U(s)); }
CUresult cuGraphExecDestroy(CUgraphExec e) { return NOTE(U(e)); }
CUresult cuGraphDestroy(CUgraph g) { return NOTE(U(g)); }
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n) { *n = 0xe100000001ull; return NOTE(U(g), U(nodes)); }

CUresult cuMemAlloc(CUdeviceptr *p, size_t n) { *p = 0xf100000001ull; return NOTE(n); }
CUresult cuMemFree(CUdeviceptr p) { return NOTE(p); }
CUresult cuMemGetInfo(size_t *f, size_t *t) { *f = 0x1200000001ull; *t = 0x1300000001ull; return NOTE(0); }
CUresult cuMemcpyHtoDAsync(CUdeviceptr d, const void *h, size_t n, CUstream s) { return NOTE(d, *(const char *)h, n, U(s)); }
CUresult cuMemcpyDtoHAsync(void *h, CUdeviceptr d, size_t n, CUstream s) { *(char *)h = 42; return NOTE(d, n, U(s)); }
CUresult cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr e, size_t n, CUstream s) { return NOTE(d, e, n, U(s)); }
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream s) { return NOTE(d, v, n, U(s)); }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream s) { return NOTE(d, v, n, U(s)); }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = memory; memory[0] = 77; return NOTE(n, f); }
CUresult cuMemFreeHost(void *p) { return NOTE(p == memory); }
CUresult cuMemHostGetDevicePointer(CUdeviceptr *d, void *p, unsigned f) { *d = 0x1400000001ull; return NOTE(p == memory, f); }

CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr at, unsigned long long f) {
  *p = 0x1500000001ull;
  return NOTE(n, align, at, f);
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t n) { return NOTE(p, n); }
static CUresult prop(const char *name, const CUmemAllocationProp *p, uint64_t x, uint64_t y) {
  uint64_t a[] = {x, y, p->type, p->requestedHandleTypes, p->location.type, I(p->location.id), U(p->win32HandleMetaData),
                  p->allocFlags.compressionType, p->allocFlags.gpuDirectRDMACapable, p->allocFlags.usage, sizeof *p};
  return note(name, sizeof a / sizeof *a, a);
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long f) {
  *h = 0x1600000001ull;
  return prop(__func__, p, n, f);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle h) { return NOTE(h); }
CUresult cuMemMap(CUdeviceptr p, size_t n, size_t off, CUmemGenericAllocationHandle h, unsigned long long f) { return NOTE(p, n, off, h, f); }
CUresult cuMemUnmap(CUdeviceptr p, size_t n) { return NOTE(p, n); }
CUresult cuMemSetAccess(CUdeviceptr p, size_t n, const CUmemAccessDesc *d, size_t count) {
  return NOTE(p, n, d->location.type, I(d->location.id), d->flags, count, sizeof *d);
}
CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags o) {
  *n = 0x1700000001ull;
  return prop(__func__, p, o, 0);
}
