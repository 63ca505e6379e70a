# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# kernels/: the interface, the executable specification (ref/, linked by tests
# only) and the CPU backend, whose op sources are compiled once per
# instruction set with -DKERN_ISA=<name>; kernels/cpu picks one at run time.

noinst_LIBRARIES += kernels/libkernels.a
kernels_libkernels_a_SOURCES = kernels/kernels.c kernels/kernels.h \
	kernels/compact.h kernels/planes.c kernels/plugin.c kernels/plugin.h kernels/quant.h \
	kernels/sample.h
kernels_libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) \
	-DKERN_PLUGIN_DIR='"$(pkglibdir)"'

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
	kernels/cpu/simd_neonbf16.h kernels/cpu/simd_portable.h kernels/cpu/swiglu.c kernels/cpu/table.c \
	kernels/cpu/tile.c kernels/cpu/tile.h kernels/cpu/tile_fold.h \
	kernels/cpu/tile_reg.h

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

if HAVE_NEONBF16
noinst_LIBRARIES += kernels/libkernels_cpu_neonbf16.a
kernels_libkernels_cpu_neonbf16_a_SOURCES = $(KERNELS_ISA_SOURCES)
kernels_libkernels_cpu_neonbf16_a_CPPFLAGS = $(AM_CPPFLAGS) -DKERN_ISA=neonbf16
kernels_libkernels_cpu_neonbf16_a_CFLAGS = $(AM_CFLAGS) $(NEONBF16_CFLAGS)
KERNELS_CPU_PATHS += kernels/libkernels_cpu_neonbf16.a
endif

# What a program that computes links. kernels.c names the backends, ref only
# where a test registers it, so ref comes on top of this (KERNELS_REF).
KERNELS_LIBS = kernels/libkernels.a kernels/libkernels_cpu.a \
	$(KERNELS_CPU_PATHS) $(LIBM) $(DL_LIBS)
KERNELS_REF = kernels/libkernels_ref.a


# ---- the CUDA backend ------------------------------------------------------
# A plugin: cudart inside, one symbol outside, no C++ library. What is not a
# kernel is C, and is compiled a second time over the emulator (tests/cuemu).

KERNELS_CUDA_C = kernels/cuda/compact.c kernels/cuda/gpu.c kernels/cuda/gpu.h kernels/cuda/graph.c \
	kernels/cuda/lt.c kernels/cuda/lt.h kernels/cuda/nccl.c kernels/cuda/nccl.h \
	kernels/cuda/plugin.c kernels/cuda/ring.c kernels/cuda/rt.h kernels/cuda/weight.c kernels/planes.c
KERNELS_CUDA_CU = kernels/cuda/accept.cu \
	kernels/cuda/attn.cu \
	kernels/cuda/embed.cu \
	kernels/cuda/expert.cu \
	kernels/cuda/join.cu \
	kernels/cuda/linear.cu \
	kernels/cuda/norm.cu \
	kernels/cuda/pack.cu \
	kernels/cuda/qkv.cu \
	kernels/cuda/router.cu \
	kernels/cuda/sample.cu
KERNELS_CUDA_CUH = kernels/cuda/dev.cuh kernels/cuda/frag.cuh \
	kernels/cuda/tile.cuh
EXTRA_DIST += kernels/cuda/.clang-format kernels/cuda/rt.c \
	$(KERNELS_CUDA_C) $(KERNELS_CUDA_CU) $(KERNELS_CUDA_CUH)

SUFFIXES += .cu
.cu.o:
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(NVCC) $(NVCC_ALL) $(NVCC_TARGETS) \
	    -I$(top_srcdir) -MD -MF $@.d -c -o $@ $<

# Contracted products and flushed subnormals would be other numbers.
NVCC_ALL = $(NVCCFLAGS) -std=c++17 -fmad=false -lineinfo \
	-Werror all-warnings \
	-Xptxas --warn-on-spills,--warn-on-local-memory-usage,--warning-as-error \
	-Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti \
	-Xcompiler -fno-threadsafe-statics

if WITH_CUDA
plugindir = $(pkglibdir)
plugin_PROGRAMS = kernels/cuda/stepd-cuda.so
kernels_cuda_stepd_cuda_so_SOURCES = $(KERNELS_CUDA_C) kernels/cuda/rt.c \
	$(KERNELS_CUDA_CU)
kernels_cuda_stepd_cuda_so_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
kernels_cuda_stepd_cuda_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
kernels_cuda_stepd_cuda_so_LDFLAGS = -Wc,-shared -Wl,-soname,stepd-cuda.so \
	-Wl,-z,defs -Wl,--exclude-libs,ALL
kernels_cuda_stepd_cuda_so_LDADD = $(CUDA_LIBS)
$(KERNELS_CUDA_CU:.cu=.o): $(KERNELS_CUDA_CUH) kernels/cuda/gpu.h \
	kernels/kernels.h kernels/quant.h kernels/sample.h
endif
CLEANFILES += kernels/cuda/*.o.d
