/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef STEPD_KERNELS_CPU_OPS_H
#define STEPD_KERNELS_CPU_OPS_H

/* The ops of one path, for its table (table.c). */

#include "kernels/cpu/simd.h"

int ISA(cpu_embed)(struct cpu *c, const struct kern_embed_args *a);
int ISA(cpu_norm)(struct cpu *c, const struct kern_norm_args *a);
int ISA(cpu_linear)(struct cpu *c, const struct kern_linear_args *a);
int ISA(cpu_qkv)(struct cpu *c, const struct kern_qkv_args *a);
int ISA(cpu_attn)(struct cpu *c, const struct kern_attn_args *a);
int ISA(cpu_swiglu)(struct cpu *c, const struct kern_swiglu_args *a);
int ISA(cpu_router)(struct cpu *c, const struct kern_router_args *a);
int ISA(cpu_expert_up)(struct cpu *c, const struct kern_expert_up_args *a);
int ISA(cpu_expert_down)(struct cpu *c, const struct kern_expert_down_args *a);
int ISA(cpu_sample)(struct cpu *c, const struct kern_sample_args *a);
int ISA(cpu_finite)(struct cpu *c, const struct kern_finite_args *a);

#endif
