/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The table of one path, for isa.c to choose. Once per path.
 */
#include "kernels/cpu/ops.h"

#define ISA_STRING2(x) #x
#define ISA_STRING(x) ISA_STRING2(x)

const struct cpu_isa ISA(cpu_isa) = {
    .name = ISA_STRING(KERN_ISA),
    .embed = ISA(cpu_embed),
    .norm = ISA(cpu_norm),
    .linear = ISA(cpu_linear),
    .qkv = ISA(cpu_qkv),
    .attn = ISA(cpu_attn),
    .swiglu = ISA(cpu_swiglu),
    .router = ISA(cpu_router),
    .expert_up = ISA(cpu_expert_up),
    .expert_down = ISA(cpu_expert_down),
    .sample = ISA(cpu_sample),
    .finite = ISA(cpu_finite),
};
