/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kernels/cuda/nccl.h against NVIDIA's header, by the compiler: functions,
 * structs and values. Compiled by test_static.sh, never run.
 */

#include "kernels/cuda/nccl.h"

#include <nccl.h>

#include "tests/cuemu/same_call.h"

NCCL_SYMBOLS(SAME_CALL)

SAME(NCCL_SUM, ncclSum);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(0, ncclSuccess);
SAME(NCCL_OLDEST, NCCL_VERSION(2, 28, 0));
SAME(sizeof(nccl_id), sizeof(ncclUniqueId));
SAME(alignof(nccl_id), alignof(ncclUniqueId));
