# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

# The bench (kt.h) and what a test on it links:
#   tests_kernels_test_X_LDADD = $(KT_LIBS)
check_LIBRARIES = tests/kernels/libkt.a
tests_kernels_libkt_a_SOURCES = tests/kernels/kt.c tests/kernels/kt.h \
	tests/kernels/kx.h
KT_LIBS = tests/kernels/libkt.a $(KERNELS_REF) $(KERNELS_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/kernels/test_quant
tests_kernels_test_quant_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_sample
tests_kernels_test_sample_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_accept
tests_kernels_test_accept_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_linear
tests_kernels_test_linear_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_compact
tests_kernels_test_compact_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_expert
tests_kernels_test_expert_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_attn
tests_kernels_test_attn_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_router
tests_kernels_test_router_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_norm
tests_kernels_test_norm_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_qkv
tests_kernels_test_qkv_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_rows
tests_kernels_test_rows_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_gpu
tests_kernels_test_gpu_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_lt
tests_kernels_test_lt_SOURCES = tests/kernels/test_lt.c tests/cuemu/fake_lt.h
tests_kernels_test_lt_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_nccl
tests_kernels_test_nccl_SOURCES = tests/kernels/test_nccl.c \
	tests/cuemu/fake_nccl.h
tests_kernels_test_nccl_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_reads
tests_kernels_test_reads_SOURCES = tests/kernels/test_reads.c \
	tests/cuemu/cuemu_reads.h
tests_kernels_test_reads_LDADD = $(KT_LIBS)

check_PROGRAMS += tests/kernels/test_pool
tests_kernels_test_pool_LDADD = $(KERNELS_LIBS) $(TEST_LIBS)

TEST_THREADS += tests/kernels/test_attn tests/kernels/test_expert \
	tests/kernels/test_linear tests/kernels/test_pool

check_PROGRAMS += tests/kernels/test_ref
tests_kernels_test_ref_LDADD = $(KT_LIBS)
