/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kernels/cuda/lt.h against NVIDIA's header, by the compiler: functions,
 * structs and values. Compiled by test_static.sh, never run.
 */

#include "kernels/cuda/lt.h"

#include <cublasLt.h>

#include "tests/cuemu/same_call.h"

LT_SYMBOLS(SAME_CALL)

SAME(LT_R_32F, CUDA_R_32F);
SAME(LT_R_16BF, CUDA_R_16BF);
SAME(LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LT_OP_T, CUBLAS_OP_T);
SAME(LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_PREF_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LT_PREF_ALIGNMENT_A + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LT_PREF_ALIGNMENT_A + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LT_PREF_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(0, CUBLAS_STATUS_SUCCESS);
SAME(sizeof(lt_algo), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(lt_result), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(lt_result, state),
     offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(offsetof(lt_result, workspace),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
