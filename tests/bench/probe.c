/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See probe.h. Uses the backend's own pool, so that both sides of a comparison
 * have the same threads.
 */
#include "tests/bench/probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/cpu/pool.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define READ_BYTES ((size_t)256 << 20)
#define READ_CHUNK ((size_t)1 << 20) /* neighbouring chunks, other threads */
#define PEAK_STEPS 200000

struct probe {
    struct pool *pool;
    uint8_t *mem;
    uint64_t sink;
    double (*peak)(void); /* operations done by one call */
};

static clockid_t probe_clock = CLOCK_MONOTONIC;

double probe_now(void)
{
    struct timespec t;

    clock_gettime(probe_clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double probe_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), ascending);
    return x[n / 2];
}

/* ---- memory ---- */

/* One stream, prefetched from 2 KiB ahead past every cache but the first: the
 * best of those tried (Zen 5: 40 GB/s a thread; four streams without, 35). */
static void read_item(void *arg, int i_item, int i_thread)
{
    typedef uint64_t v8 __attribute__((vector_size(64), aligned(64)));
    struct probe *p = arg;
    const v8 *at =
        (const v8 *)(const void *)(p->mem + (size_t)i_item * READ_CHUNK);
    v8 a = {0};
    uint64_t sum = 0;

    (void)i_thread;
    for (size_t i = 0; i < READ_CHUNK / sizeof(*at); i += 4) {
        for (size_t k = 0; k < 4; k++) {
            __builtin_prefetch((const uint8_t *)(at + i + k) + 2048, 0, 0);
        }
        a ^= (at[i] ^ at[i + 1]) ^ (at[i + 2] ^ at[i + 3]);
    }
    for (int i = 0; i < 8; i++) {
        sum ^= a[i];
    }
    __atomic_fetch_xor(&p->sink, sum, __ATOMIC_RELAXED);
}

double probe_read(struct probe *p)
{
    double t = probe_now();

    pool_run(p->pool, read_item, p, (int)(READ_BYTES / READ_CHUNK));
    return (double)READ_BYTES / (probe_now() - t);
}

/* ---- arithmetic ---- */

static double peak_portable(void)
{
    typedef float v4 __attribute__((vector_size(16)));
    v4 a[8], x = {1, 1, 1, 1}, y = {1e-9f, 0, 0, 0};

    memset(a, 0, sizeof(a));
    for (int i = 0; i < PEAK_STEPS; i++) {
        for (int k = 0; k < 8; k++) {
            a[k] = a[k] * x + y;
            __asm__ volatile("" : "+m"(a[k]));
        }
    }
    return 2.0 * 4 * 8 * PEAK_STEPS;
}

#ifdef __x86_64__
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx2,fma"))) static double peak_avx2(void)
{
    __m256 x = _mm256_set1_ps(1), y = _mm256_set1_ps(1e-9f);
#define X(i) __m256 a##i = _mm256_setzero_ps();
    TWELVE(X)
#undef X
    for (int i = 0; i < PEAK_STEPS; i++) {
#define X(i)                            \
    a##i = _mm256_fmadd_ps(a##i, x, y); \
    __asm__ volatile("" : "+x"(a##i));
        TWELVE(X)
#undef X
    }
    return 2.0 * 8 * 12 * PEAK_STEPS;
}

__attribute__((target("avx512f"))) static double peak_avx512(void)
{
    __m512 x = _mm512_set1_ps(1), y = _mm512_set1_ps(1e-9f);
#define X(i) __m512 a##i = _mm512_setzero_ps();
    TWELVE(X)
#undef X
    for (int i = 0; i < PEAK_STEPS; i++) {
#define X(i)                            \
    a##i = _mm512_fmadd_ps(a##i, x, y); \
    __asm__ volatile("" : "+v"(a##i));
        TWELVE(X)
#undef X
    }
    return 2.0 * 16 * 12 * PEAK_STEPS;
}

__attribute__((target("avx512f,avx512bf16"))) static double peak_avx512bf16(
    void)
{
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
#define X(i) __m512 a##i = _mm512_setzero_ps();
    TWELVE(X)
#undef X
    for (int i = 0; i < PEAK_STEPS; i++) {
#define X(i)                             \
    a##i = _mm512_dpbf16_ps(a##i, x, x); \
    __asm__ volatile("" : "+v"(a##i));
        TWELVE(X)
#undef X
    }
    return 2.0 * 32 * 12 * PEAK_STEPS;
}
#endif

static void peak_item(void *arg, int i_item, int i_thread)
{
    struct probe *p = arg;

    (void)i_item;
    (void)i_thread;
    p->peak();
}

double probe_peak(struct probe *p)
{
    int n = 4 * pool_n_threads(p->pool);
    double t, ops;

    ops = p->peak();
    t = probe_now();
    pool_run(p->pool, peak_item, p, n);
    return ops * n / (probe_now() - t);
}

/* ---- the probe ---- */

static double (*peak_of(const char *isa))(void)
{
#ifdef __x86_64__
    int any = isa == NULL;

    if ((any && __builtin_cpu_supports("avx512bf16")) ||
        (!any && strcmp(isa, "avx512bf16") == 0)) {
        return peak_avx512bf16;
    }
    if ((any && __builtin_cpu_supports("avx512f")) ||
        (!any && strcmp(isa, "avx512") == 0)) {
        return peak_avx512;
    }
    if ((any && __builtin_cpu_supports("avx2")) ||
        (!any && strcmp(isa, "avx2") == 0)) {
        return peak_avx2;
    }
#endif
    (void)isa;
    return peak_portable;
}

struct probe *probe_create(int n_threads, const char *isa)
{
    struct probe *p = calloc(1, sizeof(*p));

    if (p == NULL || pool_create(&p->pool, n_threads) < 0) {
        free(p);
        return NULL;
    }
    if (pool_n_threads(p->pool) == 1) {
        probe_clock = CLOCK_THREAD_CPUTIME_ID;
    }
    p->peak = peak_of(isa);
    p->mem = aligned_alloc((size_t)2 << 20, READ_BYTES);
    if (p->mem == NULL) {
        probe_destroy(p);
        return NULL;
    }
    madvise(p->mem, READ_BYTES, MADV_HUGEPAGE); /* may fail */
    memset(p->mem, 1, READ_BYTES);
    return p;
}

void probe_destroy(struct probe *p)
{
    if (p != NULL) {
        pool_destroy(p->pool);
        free(p->mem);
        free(p);
    }
}

int probe_n_threads(const struct probe *p)
{
    return pool_n_threads(p->pool);
}
