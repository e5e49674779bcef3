// Encoder and decoder of SPLZ DICT payloads; the bytes are those of sprigs_splitzip.reference.
//
// A block of 256 threads works on one chunk, 8 elements a thread at a time. Exponents, codes and mantissas are held four
// to a register, a byte each, so that most integer operations serve four elements.
//
// What has to move, per BF16 element at 4 bits: encode 2 bytes in and 1.5 out, decode 1.5 in and 2 out. At 4.3 TB/s (a
// copy on an H200) the floor is 2457 GB/s of raw data in both directions. Escapes (0.06 % of elements) are out of line.
// encode_planes: moves 3.5 bytes and does 4 operations per element
// scan_counts: moves 0.001 bytes and does 0.004 operations per element, in at most 137 instructions
// place_escapes: moves 0.004 bytes and does 0.01 operations per element
// encode_single_pass: moves 3.5 bytes and does 4 operations per element
// place_exponents: moves 0.001 bytes and does 0.001 operations per element
// decode: moves 3.5 bytes and does 5.5 operations per element
// Operations are instructions of the loop over groups of 8 elements on sm_90, the escape and tail branches left out;
// what a block does once (tables, counts, scans) adds about 4.5 an element to encoding and 3.5 to decoding. The ceilings
// are today's counts: they may only fall.
// at most, bf16, 4 bits: decode 212, place_exponents 78, encode_single_pass 620, place_escapes 584, encode_planes 579
// at most, bf16, 4 bits, any codebook: decode 212, place_exponents 78, encode_single_pass 664, place_escapes 629, encode_planes 625
// at most, bf16, 3 bits: decode 226, place_exponents 83, encode_single_pass 674, place_escapes 587, encode_planes 676
// at most, bf16, 4 bits, pages: decode 243, place_exponents 78, encode_single_pass 705, place_escapes 675, encode_planes 660
// at most, fp32, 4 bits: decode 228, place_exponents 81, encode_single_pass 727, place_escapes 661, encode_planes 730
// at most, e5m2, 3 bits: decode 234, place_exponents 83, encode_single_pass 725, place_escapes 553, encode_planes 688
//
// Compiled once for each format and code width; the options are
//   WORD_BYTES, EXPONENT_BITS, MANTISSA_BITS   of the format
//   CODE_BITS                                  3 or 4
//   WINDOW                                     1: the codebook is 2^b consecutive exponents, coded by arithmetic
//   SCALAR                                     1: arrays of any alignment, byte by byte; 0: 16-byte aligned ones
//   PAGED                                      1: the elements lie in runs of equal length, in any order
// variant: bf16, 4 bits: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=4 -DWINDOW=1 -DSCALAR=0
// variant: bf16, 4 bits, any codebook: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=4 -DWINDOW=0 -DSCALAR=0
// variant: bf16, 3 bits: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=3 -DWINDOW=1 -DSCALAR=0
// variant: bf16, 4 bits, pages: -DWORD_BYTES=2 -DEXPONENT_BITS=8 -DMANTISSA_BITS=7 -DCODE_BITS=4 -DWINDOW=1 -DSCALAR=0 -DPAGED=1
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
#ifndef PAGED
#define PAGED 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 256u
#define WARPS (THREADS / 32u)
#define GROUP 8u
#define GROUP_BYTES (GROUP * WORD_BYTES)
#define SWEEP (THREADS * GROUP)
#define SWEEPS 4u
#define SEGMENT (SWEEP * SWEEPS)
#define SLOTS 64u
#define ALL_LANES 0xFFFFFFFFu

#define CODES (1u << CODE_BITS)
#define CODE_PAIRS (CODES * CODES)
#define EXPONENT_MASK ((1u << EXPONENT_BITS) - 1u)
#define EACH(x) ((u32)(x) * 0x01010101u)
#define ESCAPE 0x10u

// ------------------------------------------------------------------------------------------------ bytes and planes

static __device__ __forceinline__ void store_bytes(u8* at, u32 v, u32 n) {
    for (u32 k = 0; k < n; k++) at[k] = (u8)(v >> (8u * k));
}

static __device__ __forceinline__ u32 load_bytes(const u8* at, u32 n) {
    u32 v = 0;
    for (u32 k = 0; k < n; k++) v |= (u32)at[k] << (8u * k);
    return v;
}

static __device__ __forceinline__ void store2(u8* at, u32 v) {
    if (SCALAR) store_bytes(at, v, 2);
    else *(u16*)at = (u16)v;
}

static __device__ __forceinline__ void store4(u8* at, u32 v) {
    if (SCALAR) store_bytes(at, v, 4);
    else *(u32*)at = v;
}

// As store4; indexed, the compiler keeps fewer addresses in scan_counts' loop.
static __device__ __forceinline__ void store_start(u8* starts, u64 k, u32 start) {
    if (SCALAR) store_bytes(starts + 4 * k, start, 4);
    else ((u32*)starts)[k] = start;
}

static __device__ __forceinline__ u32 load2(const u8* at) { return SCALAR ? load_bytes(at, 2) : *(const u16*)at; }

static __device__ __forceinline__ u32 load4(const u8* at) { return SCALAR ? load_bytes(at, 4) : *(const u32*)at; }

static __device__ __forceinline__ u32 load_element(const u8* at) {
    return WORD_BYTES == 1 ? *at : WORD_BYTES == 2 ? load2(at) : load4(at);
}

static __device__ __forceinline__ void store_element(u8* at, u32 v) {
    if (WORD_BYTES == 1) *at = (u8)v;
    else if (WORD_BYTES == 2) store2(at, v);
    else store4(at, v);
}

// Eight fields, a byte each, of which the low `width` bits are set or not, as 8 * width bits at `at`.
template <int width>
static __device__ __forceinline__ void store_plane(u8* at, const u32 (&x)[2]) {
    if (width == 8) {
        if (SCALAR) store4(at, x[0]), store4(at + 4, x[1]);
        else *(uint2*)at = make_uint2(x[0], x[1]);
    } else if (width == 4) {
        store4(at, __byte_perm(x[0] + (x[0] >> 4), x[1] + (x[1] >> 4), 0x6420));
    } else if (width == 2) {
        // The products' terms do not meet, so that the top byte holds the four fields side by side.
        store2(at, __byte_perm(x[0] * 0x01041040u, x[1] * 0x01041040u, 0x4473));
    } else {
        *at = (u8)((x[0] * 0x10204080u >> 28) + (x[1] * 0x10204080u >> 24 & 0xF0u));
    }
}

template <int width>
static __device__ __forceinline__ void load_plane(const u8* at, u32 (&x)[2]) {
    if (width == 8) {
        if (SCALAR) x[0] = load4(at), x[1] = load4(at + 4);
        else {
            const uint2 v = *(const uint2*)at;
            x[0] = v.x, x[1] = v.y;
        }
        return;
    }
    const u32 packed = width == 4 ? load4(at) : width == 2 ? load2(at) : *at;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (width == 4) {
            const u32 spread = __byte_perm(packed, 0, i ? 0x4342 : 0x4140);
            x[i] = (spread | spread << 4) & EACH(15);
        } else if (width == 2) {
            const u32 spread = (packed >> (8 * i) & 0xFFu) * 0x1001u & 0x000F000Fu;
            x[i] = spread * 0x41u & EACH(3);
        } else {
            x[i] = (packed >> (4 * i) & 0xFu) * 0x00204081u & EACH(1);
        }
    }
}

// Where the elements lie: one after the other from `x` on, or in runs, `length` groups each, of which runs[] holds the
// distances from `x`. Division by `length` is a multiplication: 2^28 groups and more are refused by the host.
struct Array {
    u8* x;
    const u64* runs;
    u32 length, magic, shift;
};

static __device__ __forceinline__ u8* group_at(const Array& a, u32 group) {
#if PAGED
    const u32 run = __umulhi(group * GROUP, a.magic) >> a.shift;
    return a.x + a.runs[run] + (group - run * a.length) * GROUP_BYTES;
#else
    return a.x + (u64)group * GROUP_BYTES;
#endif
}

// The group `step` after `group`, which is at `at`.
static __device__ __forceinline__ u8* group_after(const Array& a, u8* at, u32 group, u32 step) {
    return PAGED ? group_at(a, group + step) : at + step * GROUP_BYTES;
}

static __device__ __forceinline__ u8* element_at(const Array& a, u32 i) {
    return group_at(a, i / GROUP) + i % GROUP * WORD_BYTES;
}

// The raw words of a group: 8, 16 or 32 bytes.
struct Words {
    u32 word[2 * WORD_BYTES];
};

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

static __device__ __forceinline__ void store_group(u8* at, const Words& words) {
#if SCALAR
#pragma unroll
    for (int i = 0; i < 2 * WORD_BYTES; i++) store_bytes(at + 4 * i, words.word[i], 4);
#elif WORD_BYTES == 1
    *(uint2*)at = make_uint2(words.word[0], words.word[1]);
#else
#pragma unroll
    for (int i = 0; i < WORD_BYTES / 2; i++)
        ((uint4*)at)[i] = make_uint4(words.word[4 * i], words.word[4 * i + 1], words.word[4 * i + 2],
                                     words.word[4 * i + 3]);
#endif
}

// A group of which only `length` elements exist; the others are `filler`, which encodes to zero bits.
static __device__ __forceinline__ Words load_partial(const u8* at, u32 length, u32 filler) {
    Words words;
#pragma unroll
    for (int i = 0; i < 2 * WORD_BYTES; i++) words.word[i] = 0;
#pragma unroll 1
    for (int k = GROUP - 1; k >= 0; k--) {
        const u32 v = (u32)k < length ? load_element(at + k * WORD_BYTES) : filler;
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

// Where the planes begin in the payload: of the codes, and of sign and mantissa, widest first.
struct Planes {
    u64 code0, code1, sm0, sm1, sm2;
};

#define CODE0_BYTES (CODE_BITS == 4 ? 4u : 2u)
#define SM0_BYTES (WORD_BYTES == 4 ? 16u : MANTISSA_BITS >= 7 ? 8u : MANTISSA_BITS == 2 ? 2u : 4u)
#define SM1_BYTES (WORD_BYTES == 4 ? 8u : MANTISSA_BITS == 10 ? 2u : MANTISSA_BITS == 2 ? 1u : 0u)
#define SM2_BYTES (MANTISSA_BITS == 10 ? 1u : 0u)
#define CODE1_BYTES (CODE_BITS == 4 ? 0u : 1u)

// The same for one thread's first group, so that its others lie at fixed distances.
struct Pointers {
    u8 *code0, *code1, *sm0, *sm1, *sm2;
};

static __device__ __forceinline__ Pointers pointers(u8* payload, const Planes& planes, u32 group) {
    Pointers to;
    to.code0 = payload + planes.code0 + (u64)group * CODE0_BYTES;
    to.code1 = payload + planes.code1 + (u64)group * CODE1_BYTES;
    to.sm0 = payload + planes.sm0 + (u64)group * SM0_BYTES;
    to.sm1 = payload + planes.sm1 + (u64)group * SM1_BYTES;
    to.sm2 = payload + planes.sm2 + (u64)group * SM2_BYTES;
    return to;
}

// ------------------------------------------------------------------------------------------------ fields

// Eight elements taken apart, four a word: a byte each for the exponent, and for the sign over the mantissa or, where
// that is wider, its low 8 bits (FP16) or high ones (FP32).
struct Fields {
    u32 exponent[2];
    u32 sm[2];
#if MANTISSA_BITS == 10
    u32 middle[2], sign[2];
#endif
#if WORD_BYTES == 4
    u32 low[4];
#endif
};

static __device__ __forceinline__ Fields take_apart(const Words& words) {
    Fields f;
#pragma unroll
    for (int i = 0; i < 2; i++) {
#if WORD_BYTES == 1
        const u32 v = words.word[i];
        f.exponent[i] = v >> MANTISSA_BITS & EACH(EXPONENT_MASK);
        f.sm[i] = (v >> EXPONENT_BITS & EACH(1u << MANTISSA_BITS)) | (v & EACH((1u << MANTISSA_BITS) - 1u));
#else
#if WORD_BYTES == 2
        const u32 a = words.word[2 * i], b = words.word[2 * i + 1];
#else
        const u32* w = &words.word[4 * i];
        f.low[2 * i] = __byte_perm(w[0], w[1], 0x5410), f.low[2 * i + 1] = __byte_perm(w[2], w[3], 0x5410);
        const u32 a = __byte_perm(w[0], w[1], 0x7632), b = __byte_perm(w[2], w[3], 0x7632);
#endif
        const u32 low = __byte_perm(a, b, 0x6420), high = __byte_perm(a, b, 0x7531);
#if MANTISSA_BITS == 10
        f.exponent[i] = high >> 2 & EACH(EXPONENT_MASK);
        f.sm[i] = low;
        f.middle[i] = high & EACH(3);
        f.sign[i] = high >> 7 & EACH(1);
#else
        f.exponent[i] = __byte_perm(a << 1, b << 1, 0x7531);
        f.sm[i] = (high & EACH(0x80)) | (low & EACH(0x7F));
#endif
#endif
    }
    return f;
}

// Sign and mantissa to `step` groups after `to`.
static __device__ __forceinline__ void store_sign_mantissa(const Pointers& to, u32 step, const Fields& f) {
#if WORD_BYTES == 4
    u8* at = to.sm0 + step * 16;
    if (SCALAR)
        for (int i = 0; i < 4; i++) store4(at + 4 * i, f.low[i]);
    else *(uint4*)at = make_uint4(f.low[0], f.low[1], f.low[2], f.low[3]);
    store_plane<8>(to.sm1 + step * 8, f.sm);
#elif MANTISSA_BITS == 7
    store_plane<8>(to.sm0 + step * 8, f.sm);
#elif MANTISSA_BITS == 10
    store_plane<8>(to.sm0 + step * 8, f.sm);
    store_plane<2>(to.sm1 + step * 2, f.middle);
    store_plane<1>(to.sm2 + step, f.sign);
#elif MANTISSA_BITS == 2
    const u32 low[2] = {f.sm[0] & EACH(3), f.sm[1] & EACH(3)};
    const u32 sign[2] = {f.sm[0] >> 2 & EACH(1), f.sm[1] >> 2 & EACH(1)};
    store_plane<2>(to.sm0 + step * 2, low);
    store_plane<1>(to.sm1 + step, sign);
#else
    store_plane<4>(to.sm0 + step * 4, f.sm);
#endif
}

// ------------------------------------------------------------------------------------------------ encoding

// Codes of eight exponents, a byte each; a set bit in the result marks an escaped element, whose code is 0.
static __device__ __forceinline__ u32 encode_exponents(const u32 (&exponent)[2], u32 (&code)[2], u32 base,
                                                       const u8* lut) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const u32 e = exponent[i];
#if WINDOW
        // The lowest byte that is below its base borrows and shows it: base + CODES is at most 256, so the byte comes
        // out CODES or above. Bytes beyond it may then be wrong, and are done again below.
        code[i] = e - EACH(base);
#else
        code[i] = (u32)lut[e & 0xFFu] | (u32)lut[e >> 8 & 0xFFu] << 8 | (u32)lut[e >> 16 & 0xFFu] << 16 |
                  (u32)lut[e >> 24] << 24;
#endif
    }
    u32 mask = 0;
    if ((code[0] | code[1]) & EACH(0x100u - CODES)) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#if WINDOW
            // Byte for byte without borrows, then 1 in each byte that is CODES or above.
            const u32 e = exponent[i], b = EACH(base), tops = EACH(0x80);
            const u32 exact = ((e | tops) - (b & ~tops)) ^ ((e ^ ~b) & tops);
            const u32 above = exact >> CODE_BITS & EACH((0x100u >> CODE_BITS) - 1u);
            const u32 escaped = (above + EACH((0x100u >> CODE_BITS) - 1u)) >> (8 - CODE_BITS) & EACH(1);
#else
            const u32 exact = code[i], escaped = exact >> 4 & EACH(1);
#endif
            code[i] = exact & EACH(CODES - 1u) & ~(escaped * (CODES - 1u));
            mask |= escaped * 0x10204080u >> 28 << (4 * i);
        }
    }
    return mask;
}

// Encode one group to `step` groups after `to`; return its escape mask.
template <bool dense>
static __device__ __forceinline__ u32 encode_group(const Words& words, const Pointers& to, u32 step, u32 base,
                                                   const u8* lut) {
    const Fields f = take_apart(words);
    u32 code[2];
    const u32 mask = encode_exponents(f.exponent, code, base, lut);
    if (dense) {
#if CODE_BITS == 4
        store_plane<4>(to.code0 + step * 4, code);
#else
        const u32 low[2] = {code[0] & EACH(3), code[1] & EACH(3)};
        const u32 top[2] = {code[0] >> 2 & EACH(1), code[1] >> 2 & EACH(1)};
        store_plane<2>(to.code0 + step * 2, low);
        store_plane<1>(to.code1 + step, top);
#endif
        store_sign_mantissa(to, step, f);
    }
    return mask;
}

// Work through up to 8192 elements from `first` on; return the escape masks of this thread's four groups, a byte each.
// All loads are under way before the first is used: 16 KiB a block. Planes have room for a whole last group.
template <bool dense>
static __device__ __forceinline__ u32 encode_segment(const Array& x, u8* payload, const Planes& planes, u32 first,
                                                     u32 end, u32 base, const u8* lut) {
    Words words[SWEEPS] = {};
    const u32 group0 = first / GROUP + threadIdx.x;
    const u32 whole = (end - first) / GROUP, rest = (end - first) % GROUP;
    u8* from = PAGED ? x.x : group_at(x, group0);
#pragma unroll
    for (u32 s = 0; s < SWEEPS; s++)
        if (threadIdx.x + s * THREADS < whole) words[s] = load_group(group_after(x, from, group0, s * THREADS));
    if (rest && threadIdx.x == whole % THREADS && whole < SWEEPS * THREADS) {
        const Words partial = load_partial(group_at(x, first / GROUP + whole), rest, base << MANTISSA_BITS);
        // Selected word by word: an index would put the array into memory.
#pragma unroll
        for (u32 s = 0; s < SWEEPS; s++)
#pragma unroll
            for (int i = 0; i < 2 * WORD_BYTES; i++)
                words[s].word[i] = whole / THREADS == s ? partial.word[i] : words[s].word[i];
    }
    const Pointers to = pointers(payload, planes, group0);
    u32 masks = 0;
#pragma unroll
    for (u32 s = 0; s < SWEEPS; s++)
        if (threadIdx.x + s * THREADS < whole + (rest != 0))
            masks |= encode_group<dense>(words[s], to, s * THREADS, base, lut) << (8u * s);
    return masks;
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
    // Two sweeps in each word: a warp has at most 256 elements a sweep.
    u32 sums[2] = {0, 0};
    if (__any_sync(ALL_LANES, masks)) {
        sums[0] = warp_sum(__popc(masks & 0xFFu) | __popc(masks & 0xFF00u) << 16);
        sums[1] = warp_sum(__popc(masks & 0xFF0000u) | __popc(masks >> 24) << 16);
    }
    if (lane < SWEEPS) counts[lane * WARPS + warp] = (lane & 2u ? sums[1] : sums[0]) >> (16u * (lane & 1u)) & 0xFFFFu;
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

// Write the escapes of a segment whose first element is `first`, at `offset` in its chunk. Escape k of the segment goes
// to entry at + k, if that is below `room`.
static __device__ __forceinline__ void write_escapes(const Array& x, u32 first, u32 offset, u32 masks,
                                                     const u32* counts, u32 at, u32 room, u8* positions,
                                                     u8* exponents) {
    const u32 warp = threadIdx.x >> 5;
#pragma unroll 1
    for (u32 s = 0; s < SWEEPS; s++, masks >>= 8) {
        u32 mask = masks & 0xFFu;
        if (!__any_sync(ALL_LANES, mask)) continue;
        const u32 own = __popc(mask);
        u32 k = at + counts[s * WARPS + warp] + (warp_inclusive(own) - own);
        const u32 index = (s * THREADS + threadIdx.x) * GROUP;
#pragma unroll 1
        for (; mask && k < room; mask &= mask - 1u, k++) {
            const u32 inside = index + (u32)__ffs((int)mask) - 1u;
            store2(positions + 2ull * k, offset + inside);
            exponents[k] = (u8)(load_element(element_at(x, first + inside)) >> MANTISSA_BITS & EXPONENT_MASK);
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
    const u8* __restrict__ x, const u64* __restrict__ runs, u32 run_groups, u32 run_magic, u32 run_shift,
    u8* __restrict__ payload, const u8* __restrict__ codebook, u32 n, u32 chunk_log2, u64 code0, u64 code1, u64 sm0,
    u64 sm1, u64 sm2, u32* __restrict__ counts, u8* __restrict__ slot_positions, u8* __restrict__ slot_exponents) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    build_lut(lut, codebook);
    const Array from = {(u8*)x, runs, run_groups, run_magic, run_shift};
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u32 base = codebook[0];
    const u32 chunk = blockIdx.x, begin = chunk << chunk_log2, end = min(n, begin + (1u << chunk_log2));
    u32 found = 0;
    for (u32 first = begin; first < end; first += SEGMENT) {
        const u32 masks = encode_segment<true>(from, payload, planes, first, end, base, lut);
        const u32 sum = rank_escapes(masks, ranks);
        if (sum)
            write_escapes(from, first, first - begin, masks, ranks, found, SLOTS,
                          slot_positions + 2ull * chunk * SLOTS, slot_exponents + (u64)chunk * SLOTS);
        found += sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) counts[chunk] = found;
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

// Clear what lies between the sections, 16 threads each. Whole groups were written: a plane ends after its last group.
static __device__ __forceinline__ void clear_padding(u8* payload, u32 n, u32 n_chunks, const Planes& planes,
                                                     u64 starts_at, u64 positions_at, u64 exponents_at, u32 total) {
    const u64 groups = (n + GROUP - 1u) / GROUP;
    const u32 section = threadIdx.x / 16u, byte = threadIdx.x % 16u;
    u64 at = planes.code0 + groups * CODE0_BYTES;
    if (section == 1) at = planes.sm0 + groups * SM0_BYTES;
    if (section == 2) at = starts_at + 4ull * (n_chunks + 1u);
    if (section == 3) at = positions_at + 2ull * total;
    if (section == 4) at = exponents_at + total;
    u32 sections = 5;
    if (CODE1_BYTES && section == sections++) at = planes.code1 + groups * CODE1_BYTES;
    if (SM1_BYTES && section == sections++) at = planes.sm1 + groups * SM1_BYTES;
    if (SM2_BYTES && section == sections++) at = planes.sm2 + groups * SM2_BYTES;
    const u32 used = (u32)at % 16u;
    if (section < sections && used && byte >= used) payload[at - used + byte] = 0;
}

// Third of three: escapes from the slots, or from the input again where a chunk has more than 64, to their places.
extern "C" __global__ __launch_bounds__(256, 4) void place_escapes(
    const u8* __restrict__ x, const u64* __restrict__ runs, u32 run_groups, u32 run_magic, u32 run_shift,
    u8* __restrict__ payload, const u8* __restrict__ codebook, u32 n, u32 chunk_log2, u64 code0, u64 code1, u64 sm0,
    u64 sm1, u64 sm2, u64 starts_at, u64 positions_at, const u8* __restrict__ slot_positions,
    const u8* __restrict__ slot_exponents, const u32* __restrict__ total, u32 limit) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    const u32 n_escapes = *total;
    if (n_escapes > limit) return;
    const Array from = {(u8*)x, runs, run_groups, run_magic, run_shift};
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    u8* positions = payload + positions_at;
    u8* exponents = positions + pad16(2ull * n_escapes);
    const u32 chunk = blockIdx.x;
    if (chunk == 0)
        clear_padding(payload, n, gridDim.x, planes, starts_at, positions_at, exponents - payload, n_escapes);
    const u8* start = payload + starts_at + 4ull * chunk;
    u32 at = load4(start);
    const u32 count = load4(start + 4) - at;
    if (count <= SLOTS) {
        if (threadIdx.x < count) {
            const u32 slot = chunk * SLOTS + threadIdx.x;
            store2(positions + 2ull * (at + threadIdx.x), *(const u16*)(slot_positions + 2ull * slot));
            exponents[at + threadIdx.x] = slot_exponents[slot];
        }
        return;
    }
    build_lut(lut, codebook);
    const u32 base = codebook[0], begin = chunk << chunk_log2, end = min(n, begin + (1u << chunk_log2));
    for (u32 first = begin; first < end; first += SEGMENT) {
        const u32 masks = encode_segment<false>(from, payload, planes, first, end, base, lut);
        const u32 sum = rank_escapes(masks, ranks);
        write_escapes(from, first, first - begin, masks, ranks, at, n_escapes, positions, exponents);
        at += sum;
        __syncthreads();
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
    const u8* __restrict__ x, const u64* __restrict__ runs, u32 run_groups, u32 run_magic, u32 run_shift,
    u8* __restrict__ payload, const u8* __restrict__ codebook, u32 n, u32 chunk_log2, u64 code0, u64 code1, u64 sm0,
    u64 sm1, u64 sm2, u64 starts_at, u64 positions_at, u64* states, u32* ticket, u32 epoch,
    u8* __restrict__ exponents, u32* __restrict__ total, u32 limit) {
    __shared__ u32 ranks[33];
    __shared__ u8 lut[256];
    __shared__ u32 shared_chunk, shared_before;
    if (threadIdx.x == 0) shared_chunk = atomicAdd(ticket, 1u);
    build_lut(lut, codebook);
    __syncthreads();
    const Array from = {(u8*)x, runs, run_groups, run_magic, run_shift};
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u32 chunk = shared_chunk, begin = chunk << chunk_log2, end = min(n, begin + (1u << chunk_log2));
    const u32 masks = encode_segment<true>(from, payload, planes, begin, end, codebook[0], lut);
    const u32 count = rank_escapes(masks, ranks);
    if (threadIdx.x == 0) {
        const u32 before = look_back(states, epoch, chunk, count);
        shared_before = before;
        u8* start = payload + starts_at + 4ull * chunk;
        store_start(start, 0, before);
        if (chunk == gridDim.x - 1u) {
            store_start(start, 1, before + count);
            *total = before + count;
        }
    }
    __syncthreads();
    if (count) write_escapes(from, begin, 0, masks, ranks, shared_before, limit, payload + positions_at, exponents);
}

// After the single pass: the exponents to their place, and the padding.
extern "C" __global__ __launch_bounds__(256) void place_exponents(
    u8* __restrict__ payload, const u8* __restrict__ exponents, u32 n, u32 n_chunks, u64 code0, u64 code1, u64 sm0,
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

// FP32 is put together as BF16 is, and its low 16 bits added.
#define PAIR_SHIFT (WORD_BYTES == 4 ? 7 : MANTISSA_BITS)

// The exponents of eight codes, in pairs of 16-bit halves, where they belong in an element.
static __device__ __forceinline__ void decode_exponents(const Pointers& from, const u32* pairs,
                                                        u32 (&half)[4]) {
#if CODE_BITS == 4
    const u32 codes = load4(from.code0);
#pragma unroll
    for (int i = 0; i < 4; i++) half[i] = pairs[codes >> (8 * i) & 0xFFu];
#else
    const u32 low = load2(from.code0), top = *from.code1;
#pragma unroll
    for (int i = 0; i < 4; i++) half[i] = pairs[(low >> (4 * i) & 0xFu) | (top >> (2 * i) & 3u) << 4];
#endif
}

// Decode the group at `from`.
static __device__ __forceinline__ Words decode_group(const Pointers& from, const u32* pairs) {
    u32 half[4], sm[2];
    decode_exponents(from, pairs, half);
    Words words;
#if WORD_BYTES == 1
#if MANTISSA_BITS == 2
    u32 sign[2];
    load_plane<2>(from.sm0, sm);
    load_plane<1>(from.sm1, sign);
#pragma unroll
    for (int i = 0; i < 2; i++) sm[i] |= sign[i] << 7;
#else
    load_plane<4>(from.sm0, sm);
#pragma unroll
    for (int i = 0; i < 2; i++)
        sm[i] = (sm[i] << EXPONENT_BITS & EACH(0x80)) | (sm[i] & EACH((1u << MANTISSA_BITS) - 1u));
#endif
#pragma unroll
    for (int i = 0; i < 2; i++) words.word[i] = __byte_perm(half[2 * i], half[2 * i + 1], 0x6420) | sm[i];
#else
    load_plane<8>(WORD_BYTES == 4 ? from.sm1 : from.sm0, sm);
#if MANTISSA_BITS == 10
    const u32 middle = load2(from.sm1), sign = *from.sm2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 m = middle >> (4 * i), s = sign >> (2 * i);
        half[i] |= __byte_perm(sm[i / 2], 0, i % 2 ? 0x4342 : 0x4140) | (m & 3u) << 8 | (m & 0xCu) << 22 |
                   (s & 1u) << 15 | (s & 2u) << 30;
    }
#else
    // Each byte twice: its high bit is the sign, its others are the mantissa.
#pragma unroll
    for (int i = 0; i < 4; i++) half[i] |= __byte_perm(sm[i / 2], 0, i % 2 ? 0x3322 : 0x1100) & 0x807F807Fu;
#endif
#if WORD_BYTES == 2
#pragma unroll
    for (int i = 0; i < 4; i++) words.word[i] = half[i];
#else
    u32 low[4];
    const u8* at = from.sm0;
    if (SCALAR)
        for (int i = 0; i < 4; i++) low[i] = load4(at + 4 * i);
    else {
        const uint4 v = *(const uint4*)at;
        low[0] = v.x, low[1] = v.y, low[2] = v.z, low[3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words.word[2 * i] = __byte_perm(low[i], half[i], 0x5410);
        words.word[2 * i + 1] = __byte_perm(low[i], half[i], 0x7632);
    }
#endif
#endif
    return words;
}

// A block a chunk. Nothing in the payload is trusted: a chunk whose escapes are not sound sets a bit of `faults`
// (1 starts, 2 positions, 4 exponents) and writes nothing.
extern "C" __global__ __launch_bounds__(256) void decode(
    const u8* __restrict__ payload, u8* out, const u64* __restrict__ runs, u32 run_groups, u32 run_magic,
    u32 run_shift, const u8* __restrict__ codebook, u32 n, u32 chunk_log2, u64 code0, u64 code1, u64 sm0, u64 sm1,
    u64 sm2, u64 starts_at, u64 positions_at, u64 exponents_at, u32 n_escapes, u32* __restrict__ faults) {
    // Two codes at a time: entry p holds the exponents of the codes in p's halves (at 3 bits: low bits, then high ones).
    __shared__ u32 pairs[CODE_PAIRS];
    __shared__ u32 partial[2 * WORD_BYTES];
    if (threadIdx.x < CODE_PAIRS) {
        const u32 p = threadIdx.x;
        const u32 a = CODE_BITS == 4 ? p & 15u : (p & 3u) | (p >> 2 & 4u);
        const u32 b = CODE_BITS == 4 ? p >> 4 : (p >> 2 & 3u) | (p >> 3 & 4u);
        pairs[p] = (u32)codebook[a] << PAIR_SHIFT | (u32)codebook[b] << (PAIR_SHIFT + 16);
    }
    const Array to = {out, runs, run_groups, run_magic, run_shift};
    const Planes planes = {code0, code1, sm0, sm1, sm2};
    const u32 chunk = blockIdx.x, begin = chunk << chunk_log2, end = min(n, begin + (1u << chunk_log2));
    const u8* start = payload + starts_at + 4ull * chunk;
    const u32 first_escape = load4(start), end_escape = load4(start + 4);
    const u8* positions = payload + positions_at;
    const u8* exponents = payload + exponents_at;
    u32 fault = 0;
    if (end_escape < first_escape || end_escape > n_escapes || (chunk == 0 && first_escape != 0) ||
        (chunk == gridDim.x - 1u && end_escape != n_escapes))
        fault = 1;
    else
#pragma unroll 1
        for (u32 k = first_escape + threadIdx.x; k < end_escape; k += THREADS) {
            const u8* at = positions + 2ull * k;
            const u32 position = load2(at);
            if (position >= end - begin || (k > first_escape && load2(at - 2) >= position)) fault |= 2;
            if (exponents[k] > EXPONENT_MASK) fault |= 4;
        }
    if (__syncthreads_or((int)fault)) {
        if (fault) atomicOr(faults, fault);
        return;
    }
    const u32 whole = end / GROUP, rest = end % GROUP;
#pragma unroll 1
    for (u32 group = begin / GROUP + threadIdx.x; group * GROUP < end; group += THREADS) {
        const Words words = decode_group(pointers((u8*)payload, planes, group), pairs);
        if (group < whole) store_group(group_at(to, group), words);
        else  // the array's last group, which is not to be stored whole
            for (int i = 0; i < 2 * WORD_BYTES; i++) partial[i] = words.word[i];
    }
    __syncthreads();
    if (threadIdx.x < rest * WORD_BYTES) group_at(to, whole)[threadIdx.x] = ((const u8*)partial)[threadIdx.x];
    if (rest) __syncthreads();
#pragma unroll 1
    for (u32 k = first_escape + threadIdx.x; k < end_escape; k += THREADS) {
        u8* at = element_at(to, begin + load2(positions + 2ull * k));
        store_element(at, (load_element(at) & ~(EXPONENT_MASK << MANTISSA_BITS)) | (u32)exponents[k] << MANTISSA_BITS);
    }
}
