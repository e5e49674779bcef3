// In place of CUDA's cuda_fp16.h: IEEE binary16, rounding to nearest even.
#pragma once
#include "sprigs/narrow_floats.h"

SPRIGS_NARROW_FLOAT(__half, __half2, __half_raw, 5, 10)
SPRIGS_NARROW_CONVERSIONS(__half, __half2, __half_raw, half, __halves2half2)
typedef __half half;
typedef __half2 half2;
