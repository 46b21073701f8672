/*
 * A stand-in for the CUDA runtime, built as libcudart.so.12 on top of the one for the driver (cuda.c): as in the real
 * one, each call ends in the driver's.
 */
#include <stddef.h>

typedef struct {
    unsigned x, y, z;
} dim3;

int cuMemAlloc_v2(unsigned long *, size_t);
int cuMemAllocManaged(unsigned long *, size_t, unsigned);
int cuMemAllocAsync(unsigned long *, size_t, void *);
int cuMemFree_v2(unsigned long);
int cuMemFreeAsync(unsigned long, void *);
int cuMemcpy(unsigned long, unsigned long, size_t);
int cuMemcpyAsync(unsigned long, unsigned long, size_t, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamSynchronize(void *);
int cuEventQuery(void *);

int cudaMalloc(unsigned long *where, size_t bytes) { return cuMemAlloc_v2(where, bytes); }
int cudaMallocManaged(unsigned long *where, size_t bytes, unsigned flags) {
    return cuMemAllocManaged(where, bytes, flags);
}
int cudaMallocAsync(unsigned long *where, size_t bytes, void *stream) { return cuMemAllocAsync(where, bytes, stream); }
int cudaFree(unsigned long where) { return where ? cuMemFree_v2(where) : 0; }
int cudaFreeAsync(unsigned long where, void *stream) { return cuMemFreeAsync(where, stream); }
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    (void)kind;
    return cuMemcpy((unsigned long)to, (unsigned long)from, bytes);
}
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    (void)kind;
    return cuMemcpyAsync((unsigned long)to, (unsigned long)from, bytes, stream);
}
int cudaLaunchKernel(void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream) {
    return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, NULL);
}
int cudaStreamSynchronize(void *stream) { return cuStreamSynchronize(stream); }
int cudaEventQuery(void *event) { return cuEventQuery(event); }
