# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

# tests_kernels_test_X_LDADD = $(KERNELS_REF) $(KERNELS_LIBS) $(TEST_LIBS)
