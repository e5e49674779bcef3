// In place of CUDA's cuda_bf16.h: the upper half of a float, rounding to nearest even.
#pragma once
#include "sprigs/narrow_floats.h"

SPRIGS_NARROW_FLOAT(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, 8, 7)
SPRIGS_NARROW_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, bfloat16, __halves2bfloat162)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
