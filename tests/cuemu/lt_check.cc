/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kernels/cuda/lt.h against NVIDIA's header, by the compiler: every function
 * has as many parameters, each of the size and kind (pointer or number) of the
 * other; structs and values are the same. Compiled by test_static.sh, never
 * run.
 */

#include "kernels/cuda/lt.h"

#include <cublasLt.h>
#include <type_traits>

template <class A, class B>
constexpr bool alike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <class F, class G> struct same_call : std::false_type {
};
template <class R, class S, class... A, class... B>
struct same_call<R(A...), S(B...)> {
    template <class... C> struct list;
    template <class X, class Y> struct all : std::false_type {
    };
    template <class... X, class... Y>
    struct all<list<X...>, list<Y...>>
        : std::bool_constant<(alike<X, Y> && ... && true)> {
    };
    static constexpr bool count = sizeof...(A) == sizeof...(B);
    static constexpr bool value =
        alike<R, S> && std::conditional_t<count, all<list<A...>, list<B...>>,
                                          std::false_type>::value;
};

#define SAME_CALL(member, type, symbol)                     \
    static_assert(same_call<type, decltype(symbol)>::value, \
                  #symbol " is called with other arguments");
LT_SYMBOLS(SAME_CALL)

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
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
