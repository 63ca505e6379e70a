/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * A libcublasLt.so.13 for tests: the calls that kernels/cuda/lt.c makes, on
 * memory of the host, which is what the emulator's device memory is. It adds in
 * descending order of K, where own kernels do not, and says in fake_lt what it
 * was asked for. It refuses what the real one would not take.
 */

#include "tests/cuemu/fake_lt.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/quant.h"

#define PUBLIC __attribute__((visibility("default")))
#define FAKE_SYMBOL(member, type, symbol) PUBLIC type symbol;
LT_SYMBOLS(FAKE_SYMBOL)

extern PUBLIC struct fake_lt fake_lt;
struct fake_lt fake_lt = {.version = LT_OLDEST};

struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
};

static int made(void **ret, size_t n)
{
    *ret = calloc(1, n);
    fake_lt.live += *ret != NULL;
    return *ret == NULL;
}

static int freed(void *p)
{
    fake_lt.live--;
    free(p);
    return 0;
}

size_t cublasLtGetVersion(void)
{
    return fake_lt.version;
}

int cublasLtCreate(void **ret)
{
    return fake_lt.no_device ? 1 : made(ret, 1);
}

int cublasLtDestroy(void *handle)
{
    return freed(handle);
}

int cublasLtMatmulDescCreate(void **ret, int compute, int scale)
{
    return compute != LT_COMPUTE_32F || scale != LT_R_32F ||
           made(ret, sizeof(int));
}

int cublasLtMatmulDescDestroy(void *desc)
{
    return freed(desc);
}

int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value,
                                   size_t n)
{
    if (attribute != LT_DESC_TRANSA || n != sizeof(int)) {
        return 7;
    }
    memcpy(desc, value, n);
    return 0;
}

int cublasLtMatrixLayoutCreate(void **ret, int type, uint64_t rows,
                               uint64_t cols, int64_t ld)
{
    struct layout *l;

    if (ld < (int64_t)rows || made(ret, sizeof(*l))) {
        return 7;
    }
    l = *ret;
    l->type = type;
    l->rows = rows;
    l->cols = cols;
    l->ld = ld;
    return 0;
}

int cublasLtMatrixLayoutDestroy(void *layout)
{
    return freed(layout);
}

int cublasLtMatmulPreferenceCreate(void **ret)
{
    return made(ret, sizeof(int));
}

int cublasLtMatmulPreferenceDestroy(void *pref)
{
    return freed(pref);
}

int cublasLtMatmulPreferenceSetAttribute(void *pref, int attribute,
                                         const void *value, size_t n)
{
    uint32_t bytes;

    (void)pref;
    if (attribute == LT_PREF_WORKSPACE) {
        return n == sizeof(uint64_t) ? 0 : 7;
    }
    if (attribute < LT_PREF_ALIGNMENT_A ||
        attribute > LT_PREF_ALIGNMENT_A + 3 || n != sizeof(bytes)) {
        return 7;
    }
    memcpy(&bytes, value, n);
    return bytes >= 16 && (bytes & (bytes - 1)) == 0 ? 0 : 7;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b,
                                   void *c, void *d, void *pref, int n,
                                   struct lt_result *ret, int *ret_n)
{
    const struct layout *la = a, *lb = b, *ld = d;

    (void)handle;
    (void)pref;
    *ret_n = 0;
    if (n < 1 || *(int *)desc != LT_OP_T || c != d || la->type != LT_R_16BF ||
        lb->type != LT_R_16BF || ld->type != LT_R_32F || la->rows != lb->rows ||
        la->cols != ld->rows || lb->cols != ld->cols) {
        return 7;
    }
    fake_lt.choices++;
    if (fake_lt.nothing) {
        return 15;
    }
    memset(ret, 0, sizeof(*ret));
    ret->algo.data[0] = 4711;
    *ret_n = 1;
    return 0;
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                   void *a_layout, const void *b, void *b_layout,
                   const void *beta, const void *c, void *c_layout, void *d,
                   void *d_layout, const struct lt_algo *algo, void *workspace,
                   size_t workspace_n, void *stream)
{
    const struct layout *la = a_layout, *lb = b_layout, *ld = d_layout;
    const uint16_t *w = a, *x = b;
    float *out = d, more;

    (void)stream;
    if (handle == NULL || desc == NULL || *(const float *)alpha != 1 ||
        c != d || c_layout != d_layout || algo->data[0] != 4711 ||
        workspace == NULL || workspace_n == 0) {
        return 7;
    }
    memcpy(&more, beta, sizeof(more));
    fake_lt.products++;
    for (uint64_t r = 0; r < ld->cols; r++) {
        for (uint64_t o = 0; o < ld->rows; o++) {
            float *at = &out[(int64_t)r * ld->ld + (int64_t)o], sum = 0;

            for (uint64_t k = la->rows; k-- > 0;) {
                sum += quant_bf16_to_f32(w[(int64_t)o * la->ld + (int64_t)k]) *
                       quant_bf16_to_f32(x[(int64_t)r * lb->ld + (int64_t)k]);
            }
            *at = more != 0 ? more * *at + sum : sum;
        }
    }
    return fake_lt.fails ? 13 : 0;
}
