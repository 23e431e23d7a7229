/* Vectors as wide as the machine has them, and an exponential for them.
 *
 * Arithmetic on `vec` is written with + - * and compiles to one instruction each (GCC and Clang know vectors as
 * types). What those operators cannot say, loads from any address, maxima and powers of two, is below, once per
 * instruction set. Nothing here depends on the number of threads, so neither do the bits of a result.
 */
#ifndef REGARD_LANES_H
#define REGARD_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* LANES floats to a vector, and VECTORS of them side by side in a product: as many as leave its sums in registers. */
#if defined(__AVX512F__)
#define LANES 16
#define VECTORS 2
#define ISA "AVX512"
#elif defined(__AVX2__)
#define LANES 8
#define VECTORS 1
#define ISA "AVX2"
#elif defined(__aarch64__)
#define LANES 4
#define VECTORS 2
#define ISA "NEON"
#else
#define LANES 4
#define VECTORS 1
#define ISA "baseline"
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static inline vec load(const float *from)
{
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void store(float *to, vec x)
{
    memcpy(to, &x, sizeof x);
}

static inline vec splat(float x)
{
    return x - (vec){0};
}

static inline vec vmax(vec a, vec b)
{
#if defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__x86_64__)
    return (vec)_mm_max_ps((__m128)a, (__m128)b);
#elif defined(__aarch64__)
    return (vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#else
    ivec larger = a > b;
    return (vec)(((ivec)a & larger) | ((ivec)b & ~larger));
#endif
}

/* Halves first: the order of a sum is part of its bits. */
static inline float total(vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float part[LANES];
    store(part, x);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] = part[i] + part[i + width];
    return part[0];
#endif
}

static inline float largest(vec x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float part[LANES];
    store(part, x);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            part[i] = part[i] > part[i + width] ? part[i] : part[i + width];
    return part[0];
#endif
}

/* One bit for each lane of a that is larger than b's. */
static inline unsigned above(vec a, vec b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ));
#elif defined(__x86_64__)
    return (unsigned)_mm_movemask_ps(_mm_cmpgt_ps((__m128)a, (__m128)b));
#else
    unsigned bits = 0;
    ivec larger = a > b;
    for (int i = 0; i < LANES; i++)
        bits |= (unsigned)(larger[i] & (1 << i));
    return bits;
#endif
}

/* x * 2^n for a whole n from -150 to 127, rounded once where the result is subnormal. */
static inline vec scaled(vec x, vec n)
{
#if defined(__AVX512F__)
    return (vec)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    /* No float is 2^-150; two factors are. */
    ivec whole = __builtin_convertvector(n, ivec), half = whole >> 1;
    vec first = (vec)((half + 127) << 23), second = (vec)((whole - half + 127) << 23);
    return x * first * second;
#endif
}

/* Below this an exponential rounds to 0. */
#define LOWEST -104.0f

/* e^x within 2 ulp for LOWEST <= x <= 88, subnormal results included.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 P(r), P a polynomial with the smallest largest error.
 * ln 2 is split in two so that n times its first part is exact with and without fused multiplication.
 */
static inline vec vexp(vec x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves no place for digits behind the point */
    vec n = (x * 1.44269504f + round) - round;
    vec r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vec p = r * 1.3814173871651292e-3f + 8.368921466171741e-3f;
    p = p * r + 4.166840761899948e-2f;
    p = p * r + 1.666651964187622e-1f;
    p = p * r + 4.999999403953552e-1f;
    p = p * (r * r) + r;
    return scaled(p + 1.0f, n);
}

/* The natural logarithm of a normal number, within 3e-7 of it relative to its size.
 *
 * x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and log(1 + f) = f - f^2 / 2 + f^3 P(f), P a polynomial
 * with the smallest largest error.
 */
static inline vec vlog(vec x)
{
    const int32_t middle = 0x3f3504f3; /* sqrt(1/2) */
    ivec n = ((ivec)x - middle) >> 23;
    vec f = (vec)((ivec)x - (n << 23)) - 1.0f, whole = __builtin_convertvector(n, vec);
    vec p = f * 8.700418472290039e-2f - 1.4267484843730927e-1f;
    p = p * f + 1.4914771914482117e-1f;
    p = p * f - 1.657758504152298e-1f;
    p = p * f + 1.9963063299655914e-1f;
    p = p * f - 2.500133812427521e-1f;
    p = p * f + 3.333390951156616e-1f;
    vec square = f * f;
    p = p * (f * square) - whole * 2.12194440e-4f;
    p = p - 0.5f * square;
    return p + f + whole * 0.693359375f;
}

#endif
