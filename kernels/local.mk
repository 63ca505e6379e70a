# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# kernels/: the interface, the executable specification (ref/, linked by tests
# only) and the CPU backend, whose op sources are compiled once per
# instruction set with -DKERN_ISA=<name>; kernels/cpu picks one at run time.

noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/kernels.c kernels/kernels.h \
	kernels/quant.h kernels/sample.h

noinst_LIBRARIES += kernels/libkernels_ref.a
kernels_libkernels_ref_a_SOURCES = kernels/ref/accept.c kernels/ref/attn.c \
	kernels/ref/embed.c kernels/ref/expert.c kernels/ref/linear.c \
	kernels/ref/norm.c kernels/ref/qkv.c kernels/ref/ref.c \
	kernels/ref/ref.h kernels/ref/router.c kernels/ref/sample.c \
	kernels/ref/swiglu.c

# Sources compiled once: the pool, the choice of a path, the weights.
noinst_LIBRARIES += kernels/libkernels_cpu.a
kernels_libkernels_cpu_a_SOURCES = kernels/cpu/accept.c kernels/cpu/cpu.c \
	kernels/cpu/cpu.h kernels/cpu/gather.c kernels/cpu/isa.c \
	kernels/cpu/pool.c kernels/cpu/pool.h kernels/cpu/weight.c

# Sources compiled once per instruction set.
KERNELS_ISA_SOURCES = kernels/cpu/act.h kernels/cpu/attn.c \
	kernels/cpu/decode.h kernels/cpu/xrows.c \
	kernels/cpu/embed.c kernels/cpu/expert_down.c kernels/cpu/expert_up.c \
	kernels/cpu/experts.h kernels/cpu/finite.c kernels/cpu/linear.c \
	kernels/cpu/norm.c kernels/cpu/norm.h kernels/cpu/ops.h \
	kernels/cpu/qkv.c kernels/cpu/router.c kernels/cpu/sample.c \
	kernels/cpu/simd.h kernels/cpu/simd_avx2.h kernels/cpu/simd_avx512.h \
	kernels/cpu/simd_portable.h kernels/cpu/swiglu.c kernels/cpu/table.c \
	kernels/cpu/tile.c kernels/cpu/tile.h

noinst_LIBRARIES += kernels/libkernels_cpu_portable.a
kernels_libkernels_cpu_portable_a_SOURCES = $(KERNELS_ISA_SOURCES)
kernels_libkernels_cpu_portable_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_ISA=portable
kernels_libkernels_cpu_portable_a_CFLAGS = $(AM_CFLAGS) $(PORTABLE_CFLAGS)
KERNELS_CPU_PATHS = kernels/libkernels_cpu_portable.a

if HAVE_AVX2
noinst_LIBRARIES += kernels/libkernels_cpu_avx2.a
kernels_libkernels_cpu_avx2_a_SOURCES = $(KERNELS_ISA_SOURCES)
kernels_libkernels_cpu_avx2_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_ISA=avx2
kernels_libkernels_cpu_avx2_a_CFLAGS = $(AM_CFLAGS) $(AVX2_CFLAGS)
KERNELS_CPU_PATHS += kernels/libkernels_cpu_avx2.a
endif

if HAVE_AVX512
noinst_LIBRARIES += kernels/libkernels_cpu_avx512.a
kernels_libkernels_cpu_avx512_a_SOURCES = $(KERNELS_ISA_SOURCES)
kernels_libkernels_cpu_avx512_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_ISA=avx512
kernels_libkernels_cpu_avx512_a_CFLAGS = $(AM_CFLAGS) $(AVX512_CFLAGS)
KERNELS_CPU_PATHS += kernels/libkernels_cpu_avx512.a
endif

if HAVE_AVX512BF16
noinst_LIBRARIES += kernels/libkernels_cpu_avx512bf16.a
kernels_libkernels_cpu_avx512bf16_a_SOURCES = $(KERNELS_ISA_SOURCES)
kernels_libkernels_cpu_avx512bf16_a_CPPFLAGS = $(AM_CPPFLAGS) \
	-DKERN_ISA=avx512bf16
kernels_libkernels_cpu_avx512bf16_a_CFLAGS = $(AM_CFLAGS) $(AVX512BF16_CFLAGS)
KERNELS_CPU_PATHS += kernels/libkernels_cpu_avx512bf16.a
endif

# What a program that computes links. kernels.c names the backends, ref only
# where a test registers it, so ref comes on top of this (KERNELS_REF).
KERNELS_LIBS = kernels/libkernels.a kernels/libkernels_cpu.a \
	$(KERNELS_CPU_PATHS) $(LIBM)
KERNELS_REF = kernels/libkernels_ref.a

EXTRA_DIST += kernels/cuda/.clang-format
