// Encoder and decoder of SPLZ DICT payloads; the bytes are those of sprigs_splitzip.reference.
//
// A block of 256 threads works on one chunk, 8 elements a thread at a time. The 8 elements are held as four pairs of
// 16-bit halves, so that most integer operations serve two elements.
//
// What has to move, per BF16 element at 4 bits: encode 2 bytes in and 1.5 out, decode 1.5 in and 2 out. At 4.3 TB/s (a
// copy on an H200) the floor is 2457 GB/s of raw data in both directions. Escapes (0.06 % of elements) are out of line.
// encode_planes: moves 3.5 bytes and does 9 operations per element
// scan_counts: moves 0.001 bytes and does 0.004 operations per element, in at most 137 instructions
// place_escapes: moves 0.004 bytes and does 0.01 operations per element
// encode_single_pass: moves 3.5 bytes and does 9 operations per element
// place_exponents: moves 0.001 bytes and does 0.001 operations per element
// decode: moves 3.5 bytes and does 11 operations per element
// Operations are instructions of the loop over groups of 8 elements on sm_90, the escape and tail branches left out;
// what a block does once (tables, counts, scans) adds about 4 an element to encoding and 3 to decoding. The ceilings
// are today's counts: they may only fall.
// at most, bf16, 4 bits: decode 270, place_exponents 161, encode_single_pass 923, place_escapes 847, encode_planes 929
// at most, bf16, 4 bits, any codebook: decode 270, place_exponents 161, encode_single_pass 984, place_escapes 912, encode_planes 990
// at most, bf16, 3 bits: decode 300, place_exponents 181, encode_single_pass 1061, place_escapes 868, encode_planes 1066
// at most, fp32, 4 bits: decode 328, place_exponents 161, encode_single_pass 1119, place_escapes 904, encode_planes 1130
// at most, e5m2, 3 bits: decode 323, place_exponents 208, encode_single_pass 1200, place_escapes 888, encode_planes 1198
//
// Compiled once for each format and code width; the options are
//   WORD_BYTES, EXPONENT_BITS, MANTISSA_BITS   of the format
//   CODE_BITS                                  3 or 4
//   WINDOW                                     1: the codebook is 2^b consecutive exponents, coded by arithmetic
//   SCALAR                                     1: arrays of any alignment, byte by byte; 0: 16-byte aligned ones
// variant: bf16, 4 bits: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=4 -DWINDOW=1 -DSCALAR=0
// variant: bf16, 4 bits, any codebook: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=4 -DWINDOW=0 -DSCALAR=0
// variant: bf16, 3 bits: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=3 -DWINDOW=1 -DSCALAR=0
// variant: fp32, 4 bits: -DWORD_BYTES=4 -DEXPONENT_BITS=8 -DMANTISSA_BITS=23 -DCODE_BITS=4 -DWINDOW=1 -DSCALAR=0
// variant: e5m2, 3 bits: -DWORD_BYTES=1 -DEXPONENT_BITS=5 -DMANTISSA_BITS=2 -DCODE_BITS=3 -DWINDOW=1 -DSCALAR=0

#ifndef WORD_BYTES
#define WORD_BYTES 2
#define EXPONENT_BITS 8
#define MANTISSA_BITS 7
#endif
#ifndef CODE_BITS
#define CODE_BITS 4
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#ifndef SCALAR
#define SCALAR 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256u
#define WARPS (THREADS / 32u)
#define GROUP 8u
#define SWEEP (THREADS * GROUP)
#define SWEEPS 4u
#define SEGMENT (SWEEP * SWEEPS)
#define SLOTS 64u
#define ALL_LANES 0xFFFFFFFFu

#define CODES (1u << CODE_BITS)
#define CODE_PAIRS (CODES * CODES)
#define EXPONENT_MASK ((1u << EXPONENT_BITS) - 1u)
#define BOTH(x) ((u32)(x) * 0x00010001u)
#define ESCAPE 0x10u

// ------------------------------------------------------------------------------------------------ bytes and fields

static __device__ __forceinline__ u32 load_element(const u8* x, u64 i) {
    x += i * WORD_BYTES;
    u32 v = x[0];
#if WORD_BYTES >= 2
    v |= (u32)x[1] << 8;
#endif
#if WORD_BYTES == 4
    v |= (u32)x[2] << 16 | (u32)x[3] << 24;
#endif
    return v;
}

static __device__ __forceinline__ void store_bytes(u8* at, u32 v, u32 n) {
    for (u32 k = 0; k < n; k++) at[k] = (u8)(v >> (8u * k));
}

static __device__ __forceinline__ u32 load_bytes(const u8* at, u32 n) {
    u32 v = 0;
    for (u32 k = 0; k < n; k++) v |= (u32)at[k] << (8u * k);
    return v;
}

// Four pairs of halves, of which the low `width` bits count, as 8 * width bits at `at`.
template <int width>
static __device__ __forceinline__ void store_plane(u8* at, const u32 (&x)[4]) {
    if (width <= 4) {
        u32 packed = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            packed |= ((x[i] | x[i] >> (16 - width)) & ((1u << 2 * width) - 1u)) << (2 * width * i);
        if (SCALAR) store_bytes(at, packed, width);
        else if (width == 4) *(u32*)at = packed;
        else if (width == 2) *(u16*)at = (u16)packed;
        else *at = (u8)packed;
    } else if (width == 8) {
        const u32 low = __byte_perm(x[0], x[1], 0x6420), high = __byte_perm(x[2], x[3], 0x6420);
        if (SCALAR) {
            store_bytes(at, low, 4);
            store_bytes(at + 4, high, 4);
        } else *(uint2*)at = make_uint2(low, high);
    } else {
        if (SCALAR)
            for (int i = 0; i < 4; i++) store_bytes(at + 4 * i, x[i], 4);
        else *(uint4*)at = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

template <int width>
static __device__ __forceinline__ void load_plane(const u8* at, u32 (&x)[4]) {
    if (width <= 4) {
        u32 packed;
        if (SCALAR) packed = load_bytes(at, width);
        else if (width == 4) packed = *(const u32*)at;
        else if (width == 2) packed = *(const u16*)at;
        else packed = *at;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 pair = packed >> (2 * width * i);
            x[i] = (pair & ((1u << width) - 1u)) | ((pair << (16 - width)) & (((1u << width) - 1u) << 16));
        }
    } else if (width == 8) {
        uint2 v;
        if (SCALAR) v = make_uint2(load_bytes(at, 4), load_bytes(at + 4, 4));
        else v = *(const uint2*)at;
        x[0] = __byte_perm(v.x, 0, 0x4140);
        x[1] = __byte_perm(v.x, 0, 0x4342);
        x[2] = __byte_perm(v.y, 0, 0x4140);
        x[3] = __byte_perm(v.y, 0, 0x4342);
    } else {
        if (SCALAR)
            for (int i = 0; i < 4; i++) x[i] = load_bytes(at + 4 * i, 4);
        else {
            const uint4 v = *(const uint4*)at;
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        }
    }
}

// Eight elements taken apart: exponents, and sign over mantissa (for FP32 its low 16 bits and its high 8).
struct Fields {
    u32 exponent[4];
    u32 low[4];
#if WORD_BYTES == 4
    u32 high[4];
#endif
};

// The raw words of a group: 8, 16 or 32 bytes.
struct Words {
    u32 word[2 * WORD_BYTES];
};

static __device__ __forceinline__ u32 group_length(u64 n, u64 group) {
    const u64 rest = n - group * GROUP;
    return rest < GROUP ? (u32)rest : GROUP;
}

static __device__ __forceinline__ Words load_group(const u8* at) {
    Words words;
#if SCALAR
#pragma unroll
    for (int i = 0; i < 2 * WORD_BYTES; i++) words.word[i] = load_bytes(at + 4 * i, 4);
#elif WORD_BYTES == 1
    const uint2 v = *(const uint2*)at;
    words.word[0] = v.x, words.word[1] = v.y;
#else
#pragma unroll
    for (int i = 0; i < WORD_BYTES / 2; i++) {
        const uint4 v = ((const uint4*)at)[i];
        words.word[4 * i] = v.x, words.word[4 * i + 1] = v.y;
        words.word[4 * i + 2] = v.z, words.word[4 * i + 3] = v.w;
    }
#endif
    return words;
}

// The last group, of which `length` elements exist; the others are `filler`, which encodes to zero bits.
static __device__ __forceinline__ Words load_partial(const u8* x, u64 group, u32 length, u32 filler) {
    Words words;
#pragma unroll
    for (int i = 0; i < 2 * WORD_BYTES; i++) words.word[i] = 0;
#pragma unroll 1
    for (int k = GROUP - 1; k >= 0; k--) {
        const u32 v = (u32)k < length ? load_element(x, group * GROUP + k) : filler;
        // Push each element in from below: no word is indexed by a variable, which would take memory.
#pragma unroll
        for (int i = 2 * WORD_BYTES - 1; i > 0; i--)
            words.word[i] = WORD_BYTES == 4 ? words.word[i - 1]
                                            : words.word[i] << 8 * WORD_BYTES % 32 |
                                                  words.word[i - 1] >> (32 - 8 * WORD_BYTES) % 32;
        words.word[0] = WORD_BYTES == 4 ? v : words.word[0] << 8 * WORD_BYTES % 32 | v;
    }
    return words;
}

static __device__ __forceinline__ Fields take_apart(const Words& words) {
    Fields f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if WORD_BYTES == 4
        const u32 a = words.word[2 * i], b = words.word[2 * i + 1];
        f.exponent[i] = ((a >> 23) & 0xFFu) | ((b >> 7) & 0x00FF0000u);
        f.low[i] = __byte_perm(a, b, 0x5410);
        f.high[i] = ((a >> 24) & 0x80u) | ((a >> 16) & 0x7Fu) | ((b >> 8) & 0x00800000u) | (b & 0x007F0000u);
#else
#if WORD_BYTES == 2
        const u32 v = words.word[i];
#else
        const u32 v = __byte_perm(words.word[i / 2], 0, i % 2 ? 0x4342 : 0x4140);
#endif
        f.exponent[i] = (v >> MANTISSA_BITS) & BOTH(EXPONENT_MASK);
        f.low[i] = ((v >> EXPONENT_BITS) & BOTH(1u << MANTISSA_BITS)) | (v & BOTH((1u << MANTISSA_BITS) - 1u));
#endif
    }
    return f;
}

static __device__ __forceinline__ void store_group(u8* out, u64 group, u32 length, Words words) {
    u8* at = out + group * (GROUP * WORD_BYTES);
    if (!SCALAR && length == GROUP) {
#if WORD_BYTES == 1
        *(uint2*)at = make_uint2(words.word[0], words.word[1]);
#else
#pragma unroll
        for (int i = 0; i < WORD_BYTES / 2; i++)
            ((uint4*)at)[i] = make_uint4(words.word[4 * i], words.word[4 * i + 1], words.word[4 * i + 2],
                                         words.word[4 * i + 3]);
#endif
        return;
    }
#pragma unroll 1
    for (u32 k = 0; k < length; k++) {
        store_bytes(at + k * WORD_BYTES, words.word[0], WORD_BYTES);
        // Pull the next element down, as load_partial pushes them up.
#pragma unroll
        for (int i = 0; i < 2 * WORD_BYTES - 1; i++)
            words.word[i] = WORD_BYTES == 4 ? words.word[i + 1]
                                            : words.word[i] >> 8 * WORD_BYTES % 32 |
                                                  words.word[i + 1] << (32 - 8 * WORD_BYTES) % 32;
        words.word[2 * WORD_BYTES - 1] >>= 8 * WORD_BYTES % 32;
    }
}

// Where the planes begin in the payload: of the codes, and of sign and mantissa, widest first.
struct Planes {
    u64 code0, code1, sm0, sm1, sm2;
};

// The same for one thread's first group, so that its others lie at fixed distances.
struct Pointers {
    u8 *code0, *code1, *sm0, *sm1, *sm2;
};

static __device__ __forceinline__ Pointers pointers(u8* payload, const Planes& planes, u64 group) {
    Pointers to;
    to.code0 = payload + planes.code0 + group * (CODE_BITS == 4 ? 4 : 2);
    to.code1 = payload + planes.code1 + group;
#if WORD_BYTES == 4
    to.sm0 = payload + planes.sm0 + group * 16;
    to.sm1 = payload + planes.sm1 + group * 8;
#elif MANTISSA_BITS >= 7
    to.sm0 = payload + planes.sm0 + group * 8;
    to.sm1 = payload + planes.sm1 + group * 2;
#elif MANTISSA_BITS == 2
    to.sm0 = payload + planes.sm0 + group * 2;
    to.sm1 = payload + planes.sm1 + group;
#else
    to.sm0 = payload + planes.sm0 + group * 4;
    to.sm1 = payload;
#endif
    to.sm2 = payload + planes.sm2 + group;
    return to;
}

static __device__ __forceinline__ void store_sign_mantissa(const Pointers& to, u32 step, const Fields& f) {
#if WORD_BYTES == 4
    store_plane<16>(to.sm0 + step * 16, f.low);
    store_plane<8>(to.sm1 + step * 8, f.high);
#elif MANTISSA_BITS == 7
    store_plane<8>(to.sm0 + step * 8, f.low);
#elif MANTISSA_BITS == 10
    u32 middle[4], top[4];
#pragma unroll
    for (int i = 0; i < 4; i++) middle[i] = (f.low[i] >> 8) & BOTH(3), top[i] = (f.low[i] >> 10) & BOTH(1);
    store_plane<8>(to.sm0 + step * 8, f.low);
    store_plane<2>(to.sm1 + step * 2, middle);
    store_plane<1>(to.sm2 + step, top);
#elif MANTISSA_BITS == 2
    u32 low[4], top[4];
#pragma unroll
    for (int i = 0; i < 4; i++) low[i] = f.low[i] & BOTH(3), top[i] = (f.low[i] >> 2) & BOTH(1);
    store_plane<2>(to.sm0 + step * 2, low);
    store_plane<1>(to.sm1 + step, top);
#else
    store_plane<4>(to.sm0 + step * 4, f.low);
#endif
}

static __device__ __forceinline__ void load_sign_mantissa(const u8* payload, const Planes& planes, u64 group,
                                                          Fields& f) {
#if WORD_BYTES == 4
    load_plane<16>(payload + planes.sm0 + group * 16, f.low);
    load_plane<8>(payload + planes.sm1 + group * 8, f.high);
#elif MANTISSA_BITS == 7
    load_plane<8>(payload + planes.sm0 + group * 8, f.low);
#elif MANTISSA_BITS == 10
    u32 middle[4], top[4];
    load_plane<8>(payload + planes.sm0 + group * 8, f.low);
    load_plane<2>(payload + planes.sm1 + group * 2, middle);
    load_plane<1>(payload + planes.sm2 + group, top);
#pragma unroll
    for (int i = 0; i < 4; i++) f.low[i] |= middle[i] << 8 | top[i] << 10;
#elif MANTISSA_BITS == 2
    u32 top[4];
    load_plane<2>(payload + planes.sm0 + group * 2, f.low);
    load_plane<1>(payload + planes.sm1 + group, top);
#pragma unroll
    for (int i = 0; i < 4; i++) f.low[i] |= top[i] << 2;
#else
    load_plane<4>(payload + planes.sm0 + group * 4, f.low);
#endif
}

// ------------------------------------------------------------------------------------------------ encoding

// Codes of eight exponents; a set bit in the result marks an escaped element, whose code is 0.
static __device__ __forceinline__ u32 encode_exponents(const u32 (&exponent)[4], u32 (&code)[4], u32 base,
                                                       const u8* lut) {
    u32 bad[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if WINDOW
        // In the window, and only there, exponent - base + 256 has bit 8 set and bits CODE_BITS..7 clear.
        const u32 shifted = exponent[i] + BOTH(0x100u - base);
        bad[i] = (shifted & BOTH(0x200u - CODES)) ^ BOTH(0x100u);
        code[i] = shifted & BOTH(CODES - 1u);
#else
        const u32 found = (u32)lut[exponent[i] & 0xFFu] | (u32)lut[exponent[i] >> 16] << 16;
        bad[i] = found & BOTH(ESCAPE);
        code[i] = found & BOTH(CODES - 1u);
#endif
    }
    u32 escaped = 0;
    if (bad[0] | bad[1] | bad[2] | bad[3]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            // 1 in each half that is not zero: none exceeds 0x1FF, so bit 15 is the carry out of adding 0x7FFF.
            const u32 one = (bad[i] + BOTH(0x7FFFu)) >> 15 & BOTH(1);
            escaped |= (one | one >> 15) % 4u << (2 * i);
            code[i] &= (BOTH(1) - one) * (CODES - 1u);
        }
    }
    return escaped;
}

// Encode one group to `step` groups after `to`; return its escape mask.
template <bool dense>
static __device__ __forceinline__ u32 encode_group(const Words& words, const Pointers& to, u32 step, u32 base,
                                                   const u8* lut) {
    const Fields f = take_apart(words);
    u32 code[4];
    const u32 mask = encode_exponents(f.exponent, code, base, lut);
    if (dense) {
#if CODE_BITS == 4
        store_plane<4>(to.code0 + step * 4, code);
#else
        u32 low[4], top[4];
#pragma unroll
        for (int i = 0; i < 4; i++) low[i] = code[i] & BOTH(3), top[i] = code[i] >> 2 & BOTH(1);
        store_plane<2>(to.code0 + step * 2, low);
        store_plane<1>(to.code1 + step, top);
#endif
        store_sign_mantissa(to, step, f);
    }
    return mask;
}

// Work through the whole groups of up to 8192 elements from `first` on; return the escape masks of this thread's four
// groups, a byte each. All loads are under way before the first is used: 16 KiB a block.
template <bool dense>
static __device__ __forceinline__ u32 encode_segment(const u8* x, u8* payload, const Planes& planes, u64 first,
                                                     u64 end, u32 base, const u8* lut) {
    Words words[SWEEPS];
    const u64 group0 = first / GROUP + threadIdx.x;
    const u32 groups = (u32)min((end - first) / GROUP, (u64)(SWEEPS * THREADS));
    const u8* from = x + group0 * (GROUP * WORD_BYTES);
#pragma unroll
    for (u32 s = 0; s < SWEEPS; s++)
        if (threadIdx.x + s * THREADS < groups) words[s] = load_group(from + s * (THREADS * GROUP * WORD_BYTES));
    const Pointers to = pointers(payload, planes, group0);
    u32 masks = 0;
#pragma unroll
    for (u32 s = 0; s < SWEEPS; s++)
        if (threadIdx.x + s * THREADS < groups)
            masks |= encode_group<dense>(words[s], to, s * THREADS, base, lut) << (8u * s);
    return masks;
}

// The elements after the last whole group, if this chunk has them: for one thread. Returns their escape mask.
template <bool dense>
static __device__ __forceinline__ u32 encode_tail(const u8* x, u8* payload, const Planes& planes, u64 n, u64 end,
                                                  u32 base, const u8* lut) {
    const u32 length = (u32)(n % GROUP);
    if (end != n || !length) return 0;
    const Words words = load_partial(x, n / GROUP, length, base << MANTISSA_BITS);
    return encode_group<dense>(words, pointers(payload, planes, n / GROUP), 0, base, lut);
}

static __device__ __forceinline__ u32 warp_sum(u32 v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(ALL_LANES, v);
#else
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(ALL_LANES, v, step);
    return v;
#endif
}

static __device__ __forceinline__ u32 warp_inclusive(u32 v) {
    const u32 lane = threadIdx.x & 31u;
#pragma unroll
    for (u32 step = 1; step < 32; step <<= 1) {
        const u32 left = __shfl_up_sync(ALL_LANES, v, step);
        if (lane >= step) v += left;
    }
    return v;
}

// Number the escapes of a segment in element order: counts[] gets the rank of each (sweep, warp), the sum is returned.
// The whole block takes part.
static __device__ __forceinline__ u32 rank_escapes(u32 masks, u32* counts) {
    const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
#pragma unroll
    for (u32 s = 0; s < SWEEPS; s++) {
        const u32 mask = masks >> (8u * s) & 0xFFu;
        const u32 sum = __any_sync(ALL_LANES, mask) ? warp_sum(__popc(mask)) : 0u;
        if (lane == 0) counts[s * WARPS + warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        const u32 own = counts[lane];
        const u32 up_to = warp_inclusive(own);
        counts[lane] = up_to - own;
        if (lane == 31) counts[32] = up_to;
    }
    __syncthreads();
    return counts[32];
}

static __device__ __forceinline__ u32 exponent_of(const u8* x, u64 i) {
    return load_element(x, i) >> MANTISSA_BITS & EXPONENT_MASK;
}

static __device__ __forceinline__ void store_position(u8* positions, u64 k, u32 position) {
    if (SCALAR) store_bytes(positions + 2 * k, position, 2);
    else ((u16*)positions)[k] = (u16)position;
}

static __device__ __forceinline__ void store_start(u8* starts, u64 k, u32 start) {
    if (SCALAR) store_bytes(starts + 4 * k, start, 4);
    else ((u32*)starts)[k] = start;
}

static __device__ __forceinline__ u32 load_start(const u8* starts, u64 k) {
    return SCALAR ? load_bytes(starts + 4 * k, 4) : ((const u32*)starts)[k];
}

// Write the escapes of a segment whose first element is `first`, at `offset` in its chunk. Escape k of the segment goes
// to entry at + k, if that is below `room`.
static __device__ __forceinline__ void write_escapes(const u8* x, u64 first, u32 offset, u32 masks, const u32* counts,
                                                     u64 at, u64 room, u8* positions, u8* exponents) {
    const u32 warp = threadIdx.x >> 5;
#pragma unroll 1
    for (u32 s = 0; s < SWEEPS; s++) {
        u32 mask = masks >> (8u * s) & 0xFFu;
        if (!__any_sync(ALL_LANES, mask)) continue;
        const u32 own = __popc(mask);
        u64 k = at + counts[s * WARPS + warp] + (warp_inclusive(own) - own);
        const u32 index = (s * THREADS + threadIdx.x) * GROUP;
        for (; mask; mask &= mask - 1u, k++) {
            const u32 inside = index + (u32)__ffs((int)mask) - 1u;
            if (k < room) {
                store_position(positions, k, offset + inside);
                exponents[k] = (u8)exponent_of(x, first + inside);
            }
        }
    }
}

// Write the escapes of the tail, for one thread.
static __device__ __forceinline__ void write_tail(const u8* x, u64 n, u64 begin, u32 mask, u64 at, u64 room,
                                                  u8* positions, u8* exponents) {
    for (; mask; mask &= mask - 1u, at++) {
        const u64 i = n / GROUP * GROUP + (u32)__ffs((int)mask) - 1u;
        if (at < room) {
            store_position(positions, at, (u32)(i - begin));
            exponents[at] = (u8)exponent_of(x, i);
        }
    }
}

static __device__ __forceinline__ void build_lut(u8* lut, const u8* codebook) {
#if !WINDOW
    lut[threadIdx.x] = ESCAPE;
    __syncthreads();
    if (threadIdx.x < CODES) lut[codebook[threadIdx.x]] = (u8)threadIdx.x;
    __syncthreads();
#endif
}

static __device__ __forceinline__ u64 pad16(u64 v) { return (v + 15u) & ~15ull; }

// First of three: planes, the number of escapes of each chunk, and its first 64 escapes into slots.
extern "C" __global__ __launch_bounds__(256, 4) void encode_planes(
    const u8* __restrict__ x, u8* __restrict__ payload, const u8* __restrict__ codebook, u64 n, u32 chunk_log2,
    u64 code0, u64 code1, u64 sm0, u64 sm1, u64 sm2, u32* __restrict__ counts, u8* __restrict__ slot_positions,
    u8* __restrict__ slot_exponents) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    build_lut(lut, codebook);
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u32 base = codebook[0];
    const u64 chunk = blockIdx.x, begin = chunk << chunk_log2;
    const u64 end = min(n, begin + (1ull << chunk_log2));
    u8* positions = slot_positions + chunk * (2 * SLOTS);
    u8* exponents = slot_exponents + chunk * SLOTS;
    u32 found = 0;
    for (u64 first = begin; first < end; first += SEGMENT) {
        const u32 masks = encode_segment<true>(x, payload, planes, first, end, base, lut);
        const u32 sum = rank_escapes(masks, ranks);
        if (sum)
            write_escapes(x, first, (u32)(first - begin), masks, ranks, found, SLOTS, positions, exponents);
        found += sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const u32 tail = encode_tail<true>(x, payload, planes, n, end, base, lut);
        write_tail(x, n, begin, tail, found, SLOTS, positions, exponents);
        counts[chunk] = found + __popc(tail);
    }
}

// Second of three, one block of 1024 threads: chunk starts, the exclusive sums of counts, and their total.
extern "C" __global__ __launch_bounds__(1024) void scan_counts(const u32* __restrict__ counts, u32 n_chunks,
                                                               u8* __restrict__ payload, u64 starts_at,
                                                               u32* __restrict__ total) {
    __shared__ u32 sums[32];
    u8* starts = payload + starts_at;
    const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
    u32 carry = 0;
    for (u32 first = 0; first < n_chunks; first += 1024u) {
        const u32 i = first + threadIdx.x;
        const u32 own = i < n_chunks ? counts[i] : 0u;
        const u32 up_to = warp_inclusive(own);
        if (lane == 31) sums[warp] = up_to;
        __syncthreads();
        if (warp == 0) sums[lane] = warp_inclusive(sums[lane]);
        __syncthreads();
        const u32 before = carry + (warp ? sums[warp - 1] : 0u) + up_to - own;
        if (i < n_chunks) store_start(starts, i, before);
        carry += sums[31];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        store_start(starts, n_chunks, carry);
        *total = carry;
    }
}

static __device__ __forceinline__ void clear(u8* payload, u64 from, u64 to) {
    for (u64 i = from + threadIdx.x; i < to; i += blockDim.x) payload[i] = 0;
}

// Clear what lies between the sections. Whole groups were written, so a plane ends after its last group.
static __device__ __forceinline__ void clear_padding(u8* payload, u64 n, u32 n_chunks, const Planes& planes,
                                                     u64 starts_at, u64 positions_at, u64 exponents_at, u32 total) {
    const u64 groups = (n + GROUP - 1u) / GROUP;
#if CODE_BITS == 4
    clear(payload, planes.code0 + groups * 4, pad16(planes.code0 + groups * 4));
#else
    clear(payload, planes.code0 + groups * 2, pad16(planes.code0 + groups * 2));
    clear(payload, planes.code1 + groups, pad16(planes.code1 + groups));
#endif
#if WORD_BYTES == 4
    clear(payload, planes.sm1 + groups * 8, pad16(planes.sm1 + groups * 8));
#elif MANTISSA_BITS == 7
    clear(payload, planes.sm0 + groups * 8, pad16(planes.sm0 + groups * 8));
#elif MANTISSA_BITS == 10
    clear(payload, planes.sm0 + groups * 8, pad16(planes.sm0 + groups * 8));
    clear(payload, planes.sm1 + groups * 2, pad16(planes.sm1 + groups * 2));
    clear(payload, planes.sm2 + groups, pad16(planes.sm2 + groups));
#elif MANTISSA_BITS == 2
    clear(payload, planes.sm0 + groups * 2, pad16(planes.sm0 + groups * 2));
    clear(payload, planes.sm1 + groups, pad16(planes.sm1 + groups));
#else
    clear(payload, planes.sm0 + groups * 4, pad16(planes.sm0 + groups * 4));
#endif
    clear(payload, starts_at + 4ull * (n_chunks + 1u), positions_at);
    clear(payload, positions_at + 2ull * total, exponents_at);
    clear(payload, exponents_at + total, pad16(exponents_at + total));
}

// Third of three: escapes from the slots, or from the input again where a chunk has more than 64, to their places.
extern "C" __global__ __launch_bounds__(256, 4) void place_escapes(
    const u8* __restrict__ x, u8* __restrict__ payload, const u8* __restrict__ codebook, u64 n, u32 chunk_log2,
    u64 code0, u64 code1, u64 sm0, u64 sm1, u64 sm2, u64 starts_at, u64 positions_at,
    const u8* __restrict__ slot_positions, const u8* __restrict__ slot_exponents, const u32* __restrict__ total,
    u32 limit) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    const u32 n_escapes = *total;
    if (n_escapes > limit) return;
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u64 exponents_at = positions_at + pad16(2ull * n_escapes);
    const u64 chunk = blockIdx.x, begin = chunk << chunk_log2;
    if (chunk == 0)
        clear_padding(payload, n, gridDim.x, planes, starts_at, positions_at, exponents_at, n_escapes);
    u64 at = load_start(payload + starts_at, chunk);
    const u32 count = load_start(payload + starts_at, chunk + 1) - (u32)at;
    u8* positions = payload + positions_at;
    u8* exponents = payload + exponents_at;
    if (count <= SLOTS) {
        if (threadIdx.x < count) {
            const u8* slot = slot_positions + chunk * (2 * SLOTS) + 2 * threadIdx.x;
            store_position(positions, at + threadIdx.x, (u32)slot[0] | (u32)slot[1] << 8);
            exponents[at + threadIdx.x] = slot_exponents[chunk * SLOTS + threadIdx.x];
        }
        return;
    }
    build_lut(lut, codebook);
    const u64 end = min(n, begin + (1ull << chunk_log2));
    for (u64 first = begin; first < end; first += SEGMENT) {
        const u32 masks = encode_segment<false>(x, payload, planes, first, end, codebook[0], lut);
        const u32 sum = rank_escapes(masks, ranks);
        write_escapes(x, first, (u32)(first - begin), masks, ranks, at, n_escapes, positions, exponents);
        at += sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const u32 tail = encode_tail<false>(x, payload, planes, n, end, codebook[0], lut);
        write_tail(x, n, begin, tail, at, n_escapes, positions, exponents);
    }
}

// ------------------------------------------------------------------------------------------------ in a single pass

// What a chunk tells its successors, in one word: epoch, status, and a number of escapes.
#define AGGREGATE 1ull
#define PREFIX 2ull
#define STATE(epoch, status, value) ((u64)(epoch) << 34 | (status) << 32 | (u64)(value))

// Publish this chunk's count and return the number of escapes before it (decoupled look-back; Merrill and Garland 2016).
// Chunks are numbered by a ticket, so every predecessor is running or done, and waiting for one ends.
static __device__ u32 look_back(u64* states, u32 epoch, u32 chunk, u32 count) {
    atomicExch(&states[chunk], STATE(epoch, chunk ? AGGREGATE : PREFIX, count));
    u32 before = 0;
    for (u32 other = chunk; other > 0;) {
        const u64 state = atomicAdd(&states[other - 1u], 0ull);
        if (state >> 34 != epoch) continue;
        before += (u32)state;
        if ((state >> 32 & 3ull) == PREFIX) break;
        other--;
    }
    if (chunk) atomicExch(&states[chunk], STATE(epoch, PREFIX, before + count));
    return before;
}

// Chunks of at most 8192 elements. Everything but the escapes' exponents, whose place depends on the total: those go to
// `exponents` in order.
extern "C" __global__ __launch_bounds__(256, 4) void encode_single_pass(
    const u8* __restrict__ x, u8* __restrict__ payload, const u8* __restrict__ codebook, u64 n, u32 chunk_log2,
    u64 code0, u64 code1, u64 sm0, u64 sm1, u64 sm2, u64 starts_at, u64 positions_at, u64* states, u32* ticket,
    u32 epoch, u8* __restrict__ exponents, u32* __restrict__ total, u32 limit) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    __shared__ u32 shared_chunk, shared_before;
    if (threadIdx.x == 0) shared_chunk = atomicAdd(ticket, 1u);
    build_lut(lut, codebook);
    __syncthreads();
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u32 base = codebook[0];
    const u32 chunk = shared_chunk;
    const u64 begin = (u64)chunk << chunk_log2;
    const u64 end = min(n, begin + (1ull << chunk_log2));
    const u32 masks = encode_segment<true>(x, payload, planes, begin, end, base, lut);
    const u32 count = rank_escapes(masks, ranks);
    u32 tail = 0;
    if (threadIdx.x == 0) {
        tail = encode_tail<true>(x, payload, planes, n, end, base, lut);
        const u32 all = count + __popc(tail);
        const u32 before = look_back(states, epoch, chunk, all);
        shared_before = before;
        store_start(payload + starts_at, chunk, before);
        if (chunk == gridDim.x - 1u) {
            store_start(payload + starts_at, chunk + 1u, before + all);
            *total = before + all;
        }
    }
    __syncthreads();
    u8* positions = payload + positions_at;
    if (count) write_escapes(x, begin, 0, masks, ranks, shared_before, limit, positions, exponents);
    write_tail(x, n, begin, tail, (u64)shared_before + count, limit, positions, exponents);
}

// After the single pass: the exponents to their place, and the padding.
extern "C" __global__ __launch_bounds__(256) void place_exponents(
    u8* __restrict__ payload, const u8* __restrict__ exponents, u64 n, u32 n_chunks, u64 code0, u64 code1, u64 sm0,
    u64 sm1, u64 sm2, u64 starts_at, u64 positions_at, const u32* __restrict__ total, u32 limit) {
    const u32 n_escapes = *total;
    if (n_escapes > limit) return;
    const u64 exponents_at = positions_at + pad16(2ull * n_escapes);
    if (blockIdx.x == 0) {
        const Planes planes = {code0, code1, sm0, sm1, sm2};
        clear_padding(payload, n, n_chunks, planes, starts_at, positions_at, exponents_at, n_escapes);
    }
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n_escapes; i += gridDim.x * blockDim.x)
        payload[exponents_at + i] = exponents[i];
}

// ------------------------------------------------------------------------------------------------ decoding

// A block a chunk. Nothing in the payload is trusted: a chunk whose escapes are not sound sets a bit of `faults`
// (1 starts, 2 positions, 4 exponents) and writes nothing.
extern "C" __global__ __launch_bounds__(256) void decode(
    const u8* __restrict__ payload, u8* out, const u8* __restrict__ codebook, u64 n, u32 chunk_log2,
    u64 code0, u64 code1, u64 sm0, u64 sm1, u64 sm2, u64 starts_at, u64 positions_at, u64 exponents_at, u32 n_escapes,
    u32* __restrict__ faults) {
    // Two codes at a time: entry p holds the exponents of the codes in p's halves.
    __shared__ u32 pairs[CODE_PAIRS];
    if (threadIdx.x < CODE_PAIRS) {
        const u32 p = threadIdx.x;
        pairs[p] = (u32)codebook[p & (CODES - 1u)] | (u32)codebook[p >> CODE_BITS] << 16;
    }
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u64 chunk = blockIdx.x, begin = chunk << chunk_log2;
    const u64 end = min(n, begin + (1ull << chunk_log2));
    const u32 length = (u32)(end - begin);
    const u32 first_escape = load_start(payload + starts_at, chunk);
    const u32 end_escape = load_start(payload + starts_at, chunk + 1);
    const u8* positions = payload + positions_at;
    const u8* exponents = payload + exponents_at;
    u32 fault = 0;
    if (end_escape < first_escape || end_escape > n_escapes || (chunk == 0 && first_escape != 0) ||
        (chunk == gridDim.x - 1u && end_escape != n_escapes))
        fault = 1;
    else
        for (u32 k = first_escape + threadIdx.x; k < end_escape; k += THREADS) {
            const u32 position = load_bytes(positions + 2ull * k, 2);
            if (position >= length || (k > first_escape && load_bytes(positions + 2ull * k - 2, 2) >= position))
                fault |= 2;
            if (exponents[k] > EXPONENT_MASK) fault |= 4;
        }
    if (__syncthreads_or((int)fault)) {
        if (fault) atomicOr(faults, fault);
        return;
    }
    for (u64 group = begin / GROUP + threadIdx.x; group * GROUP < end; group += THREADS) {
        Fields f;
#if CODE_BITS == 4
        u32 codes;
        if (SCALAR) codes = load_bytes(payload + code0 + group * 4, 4);
        else codes = *(const u32*)(payload + code0 + group * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) f.exponent[i] = pairs[codes >> (8 * i) & 0xFFu];
#else
        const u32 low = load_bytes(payload + code0 + group * 2, 2), top = payload[code1 + group];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 l = low >> (4 * i), t = top >> (2 * i);
            f.exponent[i] = pairs[(l & 3u) | (t & 1u) << 2 | (l & 0xCu) << 1 | (t & 2u) << 4];
        }
#endif
        load_sign_mantissa(payload, planes, group, f);
        Words words;
#if WORD_BYTES == 4
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 e = f.exponent[i], h = f.high[i], l = f.low[i];
            words.word[2 * i] = (e & 0xFFu) << 23 | (h & 0x80u) << 24 | (h & 0x7Fu) << 16 | (l & 0xFFFFu);
            words.word[2 * i + 1] = (e & 0xFF0000u) << 7 | (h & 0x800000u) << 8 | (h & 0x7F0000u) | l >> 16;
        }
#else
        u32 half[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            half[i] = f.exponent[i] << MANTISSA_BITS |
                      ((f.low[i] << EXPONENT_BITS) & BOTH(1u << (EXPONENT_BITS + MANTISSA_BITS))) |
                      (f.low[i] & BOTH((1u << MANTISSA_BITS) - 1u));
#if WORD_BYTES == 2
#pragma unroll
        for (int i = 0; i < 4; i++) words.word[i] = half[i];
#else
        words.word[0] = __byte_perm(half[0], half[1], 0x6420);
        words.word[1] = __byte_perm(half[2], half[3], 0x6420);
#endif
#endif
        store_group(out, group, group_length(n, group), words);
    }
    __syncthreads();
    for (u32 k = first_escape + threadIdx.x; k < end_escape; k += THREADS) {
        const u64 i = begin + load_bytes(positions + 2ull * k, 2);
        const u32 kept = load_element(out, i) & ~(EXPONENT_MASK << MANTISSA_BITS);
        store_bytes(out + i * WORD_BYTES, kept | (u32)exponents[k] << MANTISSA_BITS, WORD_BYTES);
    }
}
