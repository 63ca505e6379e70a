/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * How many planes a weight has, and how long they are: what kernels.c and a
 * backend in a plugin both need (quant.h says what is in them).
 */

#include "kernels/compact.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

int kern_weight_n_planes(enum kern_dtype t)
{
    switch (t) {
    case KERN_BF16:
    case KERN_F32:
        return 1;
    case KERN_MXFP4:
    case KERN_FP8_B128:
        return 2;
    case KERN_NVFP4:
    case KERN_NVFP4_DIV:
    case KERN_COMPACT:
        return 3;
    case KERN_N_DTYPES:
        break;
    }
    return 0;
}

size_t kern_weight_plane_bytes(const struct kern_weight_desc *d, int plane)
{
    size_t rows = (size_t)d->rows, cols = (size_t)d->cols;
    size_t b = QUANT_FP8_BLOCK;

    switch (d->dtype) {
    case KERN_BF16:
        return plane == 0 ? rows * cols * 2 : 0;
    case KERN_F32:
        return plane == 0 ? rows * cols * 4 : 0;
    case KERN_MXFP4:
        return plane == 0   ? rows * cols / 2
               : plane == 1 ? rows * (cols / QUANT_MX_BLOCK)
                            : 0;
    case KERN_FP8_B128:
        return plane == 0   ? rows * cols
               : plane == 1 ? (rows + b - 1) / b * ((cols + b - 1) / b) * 4
                            : 0;
    case KERN_NVFP4:
    case KERN_NVFP4_DIV:
        return plane == 0   ? rows * cols / 2
               : plane == 1 ? rows * (cols / QUANT_NV_BLOCK)
               : plane == 2 ? 4
                            : 0;
    case KERN_COMPACT:
        return plane == 0   ? rows * compact_row_bytes(d->cols)
               : plane == 1 ? (rows + 1) * 4
               : plane == 2 ? (size_t)d->escapes * 4
                            : 0;
    case KERN_N_DTYPES:
        break;
    }
    return 0;
}
