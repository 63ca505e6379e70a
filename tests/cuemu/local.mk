# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# tests/cuemu/: the CUDA backend on the host. Three builds of the same plugin,
# loaded by the tests of kernels/ and daemon/model through KT_BACKEND:
#
#   plain   in make check, one schedule; the daemon, too (test_daemon.sh)
#   asan    AddressSanitizer and UBSan
#   race    the compiler's access hooks: races, bounds, traffic (check.cc)
#
# make check-cuemu runs all three under all schedules. configure
# --enable-cuemu builds them. Where nvcc is, make check-cuda tests what it made;
# where a GPU is, make check-gpu.

CUEMU_CC = tests/cuemu/check.cc tests/cuemu/cuemu.h tests/cuemu/cuemu_load.h \
	tests/cuemu/cuemu_priv.h tests/cuemu/cuemu_reads.h tests/cuemu/rt_emu.cc tests/cuemu/sched.cc
CUEMU_KERNELS = tests/cuemu/kernel/accept.cc \
	tests/cuemu/kernel/attn.cc \
	tests/cuemu/kernel/embed.cc \
	tests/cuemu/kernel/expert.cc \
	tests/cuemu/kernel/join.cc \
	tests/cuemu/kernel/linear.cc \
	tests/cuemu/kernel/norm.cc \
	tests/cuemu/kernel/pack.cc \
	tests/cuemu/kernel/qkv.cc \
	tests/cuemu/kernel/router.cc \
	tests/cuemu/kernel/sample.cc

CUEMU_DEFS = $(AM_CPPFLAGS) -DGPU_BACKEND_NAME='"cuda-emulated"' \
	-DGPU_LOAD_PIECE=65536
CUEMU_CXX = -std=c++17 -g -fPIC -fvisibility=hidden -ffp-contract=off \
	-fno-strict-aliasing -Wall -Wextra -Wno-unknown-pragmas \
	-Wno-unused-parameter
CUEMU_LINK = -Wc,-shared -Wl,-z,defs
EXTRA_DIST += $(CUEMU_CC) $(CUEMU_KERNELS)

# What test_plugin.sh needs besides a plugin.
CUEMU_PLUGIN_TEST = tests/cuemu/open_backend tests/cuemu/bad/stepd-old.so \
	tests/cuemu/bad/stepd-none.so tests/cuemu/bad/stepd-size.so
EXTRA_PROGRAMS += $(CUEMU_PLUGIN_TEST)
tests_cuemu_open_backend_LDADD = $(KERNELS_LIBS)
tests_cuemu_bad_stepd_old_so_SOURCES = tests/cuemu/bad_plugin.c
tests_cuemu_bad_stepd_old_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_cuemu_bad_stepd_old_so_LDFLAGS = $(CUEMU_LINK)
tests_cuemu_bad_stepd_none_so_SOURCES = tests/cuemu/bad_plugin.c
tests_cuemu_bad_stepd_none_so_CPPFLAGS = $(AM_CPPFLAGS) -DBAD_PLUGIN_NONE
tests_cuemu_bad_stepd_none_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_cuemu_bad_stepd_none_so_LDFLAGS = $(CUEMU_LINK)
tests_cuemu_bad_stepd_size_so_SOURCES = tests/cuemu/bad_plugin.c
tests_cuemu_bad_stepd_size_so_CPPFLAGS = $(AM_CPPFLAGS) -DBAD_PLUGIN_SIZE
tests_cuemu_bad_stepd_size_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_cuemu_bad_stepd_size_so_LDFLAGS = $(CUEMU_LINK)

CLEANFILES += tests/kernels/*.gpu.log \
	tests/daemon/*.gpu.log

TEST_CUDA = tests/cuemu/test_static.sh tests/cuemu/test_plugin.sh \
	tests/cuemu/test_dialect.sh tests/cuemu/test_roofline.sh \
	tests/cuemu/test_types.sh
TEST_CUEMU = tests/cuemu/test_ops.sh tests/cuemu/test_model.sh \
	tests/cuemu/test_mutants.sh tests/cuemu/test_plugin.sh \
	tests/cuemu/test_daemon.sh tests/cuemu/test_traffic.sh \
	tests/cuemu/test_exact.sh

# The plugin as nvcc made it: no device is needed, nor the rest of the tree.
check-cuda: $(CUEMU_PLUGIN_TEST) $(plugin_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(TEST_CUDA)'

# The day there is a GPU: everything that was only emulated, on the device.
# Skips, with the reason, where none works.
check-gpu: all-am tests/cuemu/open_backend $(check_PROGRAMS) $(check_DATA)
	@$(AM_TESTS_ENVIRONMENT) bash $(srcdir)/tests/cuemu/check_gpu.sh
.PHONY: check-cuda check-gpu

if WITH_CUEMU
EXTRA_LIBRARIES += tests/cuemu/libk_plain.a tests/cuemu/libk_asan.a \
	tests/cuemu/libk_race.a
EXTRA_PROGRAMS += tests/cuemu/plain/stepd-cuda-emulated.so \
	tests/cuemu/asan/stepd-cuda-emulated.so \
	tests/cuemu/race/stepd-cuda-emulated.so
check_DATA += tests/cuemu/plain/stepd-cuda-emulated.so $(CUEMU_PLUGIN_TEST) \
	tests/cuemu/fake/libcublasLt.so.13 \
	tests/cuemu/fake/libnccl.so.2 tests/cuemu/lacking/libnccl.so.2 \
	tests/bench/bench_gpu

tests_cuemu_libk_plain_a_SOURCES = $(CUEMU_KERNELS)
tests_cuemu_libk_plain_a_CPPFLAGS = $(CUEMU_DEFS) \
	-include $(top_srcdir)/tests/cuemu/cuemu.h
tests_cuemu_libk_plain_a_CXXFLAGS = $(CUEMU_CXX) -O2
tests_cuemu_plain_stepd_cuda_emulated_so_SOURCES = $(CUEMU_CC) \
	$(KERNELS_CUDA_C)
tests_cuemu_plain_stepd_cuda_emulated_so_CPPFLAGS = $(CUEMU_DEFS)
tests_cuemu_plain_stepd_cuda_emulated_so_CXXFLAGS = $(CUEMU_CXX) -O2
tests_cuemu_plain_stepd_cuda_emulated_so_CFLAGS = $(AM_CFLAGS) -fPIC \
	-fvisibility=hidden
tests_cuemu_plain_stepd_cuda_emulated_so_LDFLAGS = $(CUEMU_LINK)
tests_cuemu_plain_stepd_cuda_emulated_so_LDADD = tests/cuemu/libk_plain.a

tests_cuemu_libk_asan_a_SOURCES = $(CUEMU_KERNELS)
tests_cuemu_libk_asan_a_CPPFLAGS = $(CUEMU_DEFS) \
	-include $(top_srcdir)/tests/cuemu/cuemu.h
tests_cuemu_libk_asan_a_CXXFLAGS = $(CUEMU_CXX) -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
tests_cuemu_asan_stepd_cuda_emulated_so_SOURCES = $(CUEMU_CC) \
	$(KERNELS_CUDA_C)
tests_cuemu_asan_stepd_cuda_emulated_so_CPPFLAGS = $(CUEMU_DEFS)
tests_cuemu_asan_stepd_cuda_emulated_so_CXXFLAGS = $(CUEMU_CXX) -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
tests_cuemu_asan_stepd_cuda_emulated_so_CFLAGS = $(AM_CFLAGS) -fPIC \
	-fvisibility=hidden -fsanitize=address,undefined
tests_cuemu_asan_stepd_cuda_emulated_so_LDFLAGS = $(CUEMU_LINK) -fsanitize=address,undefined
tests_cuemu_asan_stepd_cuda_emulated_so_LDADD = tests/cuemu/libk_asan.a

tests_cuemu_libk_race_a_SOURCES = $(CUEMU_KERNELS)
tests_cuemu_libk_race_a_CPPFLAGS = $(CUEMU_DEFS) \
	-include $(top_srcdir)/tests/cuemu/cuemu.h
tests_cuemu_libk_race_a_CXXFLAGS = $(CUEMU_CXX) -O1 -fno-tree-vectorize -fsanitize=thread \
	--param tsan-instrument-func-entry-exit=0
tests_cuemu_race_stepd_cuda_emulated_so_SOURCES = $(CUEMU_CC) \
	$(KERNELS_CUDA_C)
tests_cuemu_race_stepd_cuda_emulated_so_CPPFLAGS = $(CUEMU_DEFS)
tests_cuemu_race_stepd_cuda_emulated_so_CXXFLAGS = $(CUEMU_CXX) -O2
tests_cuemu_race_stepd_cuda_emulated_so_CFLAGS = $(AM_CFLAGS) -fPIC \
	-fvisibility=hidden
tests_cuemu_race_stepd_cuda_emulated_so_LDFLAGS = $(CUEMU_LINK)
tests_cuemu_race_stepd_cuda_emulated_so_LDADD = tests/cuemu/libk_race.a

# cuBLASLt, as far as kernels/cuda/lt.c calls it.
EXTRA_PROGRAMS += tests/cuemu/fake/libcublasLt.so.13
tests_cuemu_fake_libcublasLt_so_13_SOURCES = tests/cuemu/fake_lt.c \
	tests/cuemu/fake_lt.h
tests_cuemu_fake_libcublasLt_so_13_CFLAGS = $(AM_CFLAGS) -fPIC \
	-fvisibility=hidden
tests_cuemu_fake_libcublasLt_so_13_LDFLAGS = $(CUEMU_LINK) \
	-Wl,-soname,libcublasLt.so.13

# NCCL, as far as kernels/cuda/nccl.c calls it; and one that lacks a call.
EXTRA_PROGRAMS += tests/cuemu/fake/libnccl.so.2 tests/cuemu/lacking/libnccl.so.2
tests_cuemu_fake_libnccl_so_2_SOURCES = tests/cuemu/fake_nccl.c \
	tests/cuemu/fake_nccl.h
tests_cuemu_fake_libnccl_so_2_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
tests_cuemu_fake_libnccl_so_2_LDFLAGS = $(CUEMU_LINK) \
	-Wl,-soname,libnccl.so.2
tests_cuemu_lacking_libnccl_so_2_SOURCES = tests/cuemu/bad_plugin.c
tests_cuemu_lacking_libnccl_so_2_CFLAGS = $(AM_CFLAGS) -fPIC
tests_cuemu_lacking_libnccl_so_2_LDFLAGS = $(CUEMU_LINK) \
	-Wl,-soname,libnccl.so.2

CLEANFILES += tests/cuemu/libk_plain.a \
	tests/cuemu/libk_asan.a tests/cuemu/libk_race.a

check-cuemu: all-am $(check_PROGRAMS) $(check_DATA) \
		tests/cuemu/asan/stepd-cuda-emulated.so \
		tests/cuemu/race/stepd-cuda-emulated.so
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TEST_CUEMU_ALL=1 \
	    TEST_GUARD='timeout -k 10 7200' TESTS='$(TEST_CUEMU)'
endif
.PHONY: check-cuemu

dist_check_SCRIPTS += tests/cuemu/test_ops.sh tests/cuemu/test_model.sh \
	tests/cuemu/test_dialect.sh tests/cuemu/test_plugin.sh \
	tests/cuemu/test_mutants.sh tests/cuemu/test_static.sh \
	tests/cuemu/test_roofline.sh tests/cuemu/test_daemon.sh \
	tests/cuemu/test_bench_gpu.sh tests/cuemu/test_traffic.sh \
	tests/cuemu/test_exact.sh tests/cuemu/test_types.sh \
	tests/cuemu/test_configure.sh
EXTRA_DIST += tests/cuemu/check_gpu.sh tests/cuemu/functions.sh tests/cuemu/mutants.txt \
	tests/cuemu/check_probe.py tests/cuemu/lt_check.cc tests/cuemu/nccl_check.cc \
	tests/cuemu/same_call.h tests/cuemu/types_check.cc tests/cuemu/rt_check.c tests/cuemu/occupancy.cc tests/cuemu/probe.cu tests/cuemu/registers.txt \
	tests/cuemu/roofline.py kernels/cuda/ROOFLINE.md
