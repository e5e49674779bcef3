// The one header in front of every kernel: CUDA's keywords and built-in variables, then the intrinsics by theme.
#pragma once

#include "abi.h"

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 9
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define SPRIGS_EMULATOR 1

// __global__, __device__, __constant__, __managed__, __shared__ and __launch_bounds__ are rewritten in the text.
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __builtin_align__(n) __attribute__((aligned(n)))

typedef sprigs::size size_t;

#include "vector_types.h"

// A thread's coordinates never change, so these are `const`: the compiler may keep them across barriers.
namespace sprigs {
#if defined(SPRIGS_CHECKED)
#define SPRIGS_COORDINATES static __attribute__((const, unused, noinline)) SPRIGS_UNCHECKED
#else
#define SPRIGS_COORDINATES static inline __attribute__((always_inline, unused))
#endif
SPRIGS_COORDINATES uint3 thread_index() { return *reinterpret_cast<const uint3*>(sprigs_self->index); }
SPRIGS_COORDINATES uint3 block_index() { return *reinterpret_cast<const uint3*>(sprigs_self->block->index); }
SPRIGS_COORDINATES dim3 block_dim() { return *reinterpret_cast<const dim3*>(sprigs_block_dim); }
SPRIGS_COORDINATES dim3 grid_dim() { return *reinterpret_cast<const dim3*>(sprigs_grid_dim); }
SPRIGS_COORDINATES u32 lane() { return sprigs_self->lane; }
SPRIGS_COORDINATES unsigned char* static_shared() { return sprigs_self->block->static_shared; }
SPRIGS_COORDINATES unsigned char* dynamic_shared() { return sprigs_self->block->dynamic_shared; }
}  // namespace sprigs

#define threadIdx (::sprigs::thread_index())
#define blockIdx (::sprigs::block_index())
#define blockDim (::sprigs::block_dim())
#define gridDim (::sprigs::grid_dim())
#define warpSize 32

#include "intrinsics.h"
#include "math.h"
#include "warp.h"
#include "atomics.h"
#include "entry.h"

extern "C" __attribute__((visibility("default"))) sprigs::Module sprigs_module;

#if defined(SPRIGS_CHECKED)
#define memcpy sprigs_memcpy
#define memmove sprigs_memmove
#define memset sprigs_memset
#endif
#define printf sprigs_printf
#define assert(condition) ((condition) ? (void)0 : sprigs_assert_failed(#condition, __FILE__, __LINE__))
