/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * kern_qkv: RMSNorm and RoPE of every head, and the write into the cache. An
 * item is one KV head of one row with the query heads that read it. Once per
 * path.
 *
 * Angles are position times frequency in F32 (model-spec 2.3); their sine and
 * cosine are taken in double, so that 262,144 radians cost no accuracy, once a
 * row and not once a head.
 */
#include <errno.h>
#include <math.h>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"

#define D KERN_HEAD_DIM

struct qkv {
    struct cpu *c;
    const struct kern_qkv_args *a;
    const int32_t *slot;
    float *turn; /* [n][2][n_freq]: cosines, then sines; shared memory */
};

/* Sine and cosine of |x| < 2^20: quadrant by Cody and Waite, then Taylor on
 * [-pi/4, pi/4], 1e-11 from the truth. */
static void sin_cos(double x, float *ret_sin, float *ret_cos)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: rounds */
    double n = (x * 0.63661977236758134 + magic) - magic;
    /* pi / 2 = 33 bits, exact times n, and the rest */
    double r = (x - n * 1.5707963267341256) - n * 6.0771005065061922e-11;
    double q = r * r;
    double s =
        r + r * q *
                (-1.0 / 6 +
                 q * (1.0 / 120 +
                      q * (-1.0 / 5040 + q * (1.0 / 362880 - q / 39916800.0))));
    double c =
        1.0 +
        q * (-0.5 + q * (1.0 / 24 +
                         q * (-1.0 / 720 + q * (1.0 / 40320 - q / 3628800.0))));
    int quadrant = (int)n & 3;
    double sin_x = quadrant & 1 ? c : s, cos_x = quadrant & 1 ? s : c;

    *ret_sin = (float)(quadrant & 2 ? -sin_x : sin_x);
    *ret_cos = (float)((quadrant + 1) & 2 ? -cos_x : cos_x);
}

static void turn_item(void *arg, int i_item, int i_thread)
{
    const struct qkv *j = arg;
    const float *freq = cpu_at(j->a->freq);
    int n = j->a->n_freq;
    float *turn = j->turn + (size_t)i_item * 2 * (size_t)n;
    float pos = (float)(j->slot[i_item] + j->a->pos_shift);

    (void)i_thread;
    for (int i = 0; i < n; i++) {
        float angle = pos * freq[i];

        sin_cos((double)angle, &turn[n + i], &turn[i]);
    }
}

/* One head, normed and turned, to BF16. */
static void turn_head(uint16_t *to, const float *x, const struct kern_weight *w,
                      float eps, const float *turn, int n_freq)
{
    vf sum = vf_set(0.0f), scale;
    float y[D];

    for (int i = 0; i < D; i += VF_N) {
        vf v = vf_load(x + i);

        sum = vf_fma(v, v, sum);
    }
    scale = vf_set(norm_scale(vf_sum(sum), D, eps));
    for (int i = 0; i < D; i += VF_N) {
        vf_store(y + i,
                 vf_mul(vf_mul(vf_load(x + i), scale), norm_gain(w, i, VF_N)));
    }
    for (int i = 0; i < n_freq; i += VF_N) {
        int left = imin(VF_N, n_freq - i);
        vf c = vf_load_n(turn + i, left),
           s = vf_load_n(turn + n_freq + i, left);
        vf u = vf_load_n(y + i, left), v = vf_load_n(y + n_freq + i, left);

        vf_store_n(y + i, vf_sub(vf_mul(u, c), vf_mul(v, s)), left);
        vf_store_n(y + n_freq + i, vf_add(vf_mul(v, c), vf_mul(u, s)), left);
    }
    for (int i = 0; i < D; i += VF_N) {
        vf_store_bf16(to + i, vf_load(y + i));
    }
}

/* Where slot's K of KV head g lies; V is G * 64 rows further. NULL: no page. */
static uint16_t *cache_row(const struct kern_qkv_args *a, int seq, int slot,
                           int g)
{
    const int32_t *table = cpu_at(a->at.table),
                  *first = cpu_at(a->at.first_page);
    int col = slot / KERN_PAGE_TOK - first[seq], page;

    if (slot < 0 || col < 0 || col >= a->at.max_pages) {
        return NULL;
    }
    page = table[(size_t)seq * (size_t)a->at.max_pages + (size_t)col];
    if (page < 0 || page >= a->kv.n_pages) {
        return NULL;
    }
    return (uint16_t *)((uint8_t *)cpu_at(a->kv.pages) +
                        (size_t)page * a->kv.page_bytes) +
           ((size_t)g * KERN_PAGE_TOK + (size_t)(slot % KERN_PAGE_TOK)) * D;
}

static void qkv_item(void *arg, int i_item, int i_thread)
{
    const struct qkv *j = arg;
    const struct kern_qkv_args *a = j->a;
    int n_kv = a->kv.n_kv_head, group = a->n_head / n_kv;
    int row = i_item / n_kv, g = i_item % n_kv;
    int seq = ((const int32_t *)cpu_at(a->at.seq))[row];
    const float *turn = j->turn + (size_t)row * 2 * (size_t)a->n_freq;
    size_t head = (size_t)row * (size_t)a->n_head + (size_t)(g * group);
    size_t kv_at = ((size_t)row * (size_t)n_kv + (size_t)g) * D;
    const float *q = (const float *)cpu_at(a->q) + head * D;
    const float *v = (const float *)cpu_at(a->v) + kv_at;
    uint16_t *q_out = (uint16_t *)cpu_at(a->q_out) + head * D;
    uint16_t *k_out = cache_row(a, seq, j->slot[row], g);
    uint16_t *v_out = k_out + (size_t)n_kv * KERN_PAGE_TOK * D;

    (void)i_thread;
    for (int h = 0; h < group; h++) {
        turn_head(q_out + h * D, q + h * D, a->q_norm, a->eps, turn, a->n_freq);
    }
    turn_head(k_out, (const float *)cpu_at(a->k) + kv_at, a->k_norm, a->eps,
              turn, a->n_freq);
    for (int i = 0; i < D; i += VF_N) {
        vf_store_bf16(v_out + i, vf_load(v + i));
    }
}

int ISA(cpu_qkv)(struct cpu *c, const struct kern_qkv_args *a)
{
    struct qkv j = {.c = c, .a = a, .slot = cpu_at(a->at.slot)};
    const int32_t *seq = cpu_at(a->at.seq);
    int n = cpu_rows(&a->rows);
    int r = cpu_shared(c, sizeof(float) * 2 * (size_t)n * (size_t)a->n_freq);

    if (r < 0) {
        return r;
    }
    for (int i = 0; i < n; i++) {
        if (seq[i] < 0 || seq[i] >= a->at.n_seq ||
            cache_row(a, seq[i], j.slot[i], 0) == NULL) {
            return cpu_fail(c, -EIO, "qkv: row %d: no page for slot %d", i,
                            j.slot[i]);
        }
    }
    j.turn = (float *)c->shared;
    if (n <= 2) { /* a wake would take longer */
        for (int i = 0; i < n; i++) {
            turn_item(&j, i, 0);
        }
    } else {
        pool_run(c->pool, turn_item, &j, n);
    }
    pool_run(c->pool, qkv_item, &j, n * a->kv.n_kv_head);
    return 0;
}
