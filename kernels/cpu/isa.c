/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Which path this CPU runs. On x86 __builtin_cpu_supports reads CPUID and, for
 * what needs it, whether the kernel saves the registers (XGETBV); under
 * valgrind it sees the CPU that valgrind shows. On aarch64 the kernel tells.
 */
#include <errno.h>
#include <string.h>

#include "config.h"
#ifdef HAVE_NEONBF16
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#include "kernels/cpu/cpu.h"

static bool always(void)
{
    return true;
}

#ifdef HAVE_AVX2
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

#ifdef HAVE_AVX512
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}
#endif

#ifdef HAVE_AVX512BF16
static bool has_avx512bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

#ifdef HAVE_NEONBF16
static bool has_neonbf16(void)
{
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#endif

/* Best first. */
static const struct {
    const struct cpu_isa *isa;
    bool (*runs)(void);
} paths[] = {
#ifdef HAVE_AVX512BF16
    {&cpu_isa_avx512bf16, has_avx512bf16},
#endif
#ifdef HAVE_AVX512
    {&cpu_isa_avx512, has_avx512},
#endif
#ifdef HAVE_AVX2
    {&cpu_isa_avx2, has_avx2},
#endif
#ifdef HAVE_NEONBF16
    {&cpu_isa_neonbf16, has_neonbf16},
#endif
    {&cpu_isa_portable, always},
};

static const char *const names[] = {"avx512bf16", "avx512", "avx2", "neonbf16",
                                    "portable"};

int cpu_isa_find(const char *name, const struct cpu_isa **ret)
{
    bool known = name == NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !known; i++) {
        known = strcmp(name, names[i]) == 0;
    }
    if (!known) {
        return -EINVAL;
    }
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if ((name == NULL || strcmp(name, paths[i].isa->name) == 0) &&
            paths[i].runs()) {
            *ret = paths[i].isa;
            return 0;
        }
    }
    return -ENODEV;
}
