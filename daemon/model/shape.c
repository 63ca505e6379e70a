/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What follows from the shape of a model by arithmetic alone: rotary
 * frequencies and the size of the KV cache. Pure functions, any thread; reading
 * config.json is config.c's work.
 *
 * The frequencies are computed in double and rounded once, so that they do not
 * depend on which backend asks, and so that the table of published values is a
 * test of them.
 */
#include "daemon/model/shape.h"

#include <math.h>

#include "daemon/base/die.h"

/* llama3 scaling: wavelengths that fit often into the original length stay,
 * long ones are stretched by the factor, those between are blended. */
static double scale_freq(const struct shape *s, double f)
{
    double wavelen = 2 * M_PI / f;
    double smooth;

    if (wavelen < s->original_len / s->high_freq) {
        return f;
    }
    if (wavelen > s->original_len / s->low_freq) {
        return f / s->factor;
    }
    smooth = (s->original_len / wavelen - s->low_freq) /
             (s->high_freq - s->low_freq);
    return (1 - smooth) * f / s->factor + smooth * f;
}

void shape_freqs(const struct shape *s, int layer, float *ret)
{
    const struct shape_layer *l = &s->layer[layer];

    BUG_ON(layer < 0 || layer >= SHAPE_MAX_LAYERS + SHAPE_MAX_MTP);
    for (int j = 0; j < l->n_freq; j++) {
        double f = 1 / pow(l->theta, (double)j / l->n_freq);

        ret[j] = (float)(l->scaled ? scale_freq(s, f) : f);
    }
}

uint64_t shape_kv_token_bytes(const struct shape *s, int layer)
{
    /* K and V, two bytes (BF16) an element. */
    return 2ull * 2 * (uint64_t)s->layer[layer].n_kv_head *
           (uint64_t)s->head_dim;
}

uint64_t shape_page_bytes(const struct shape *s, enum model_group g)
{
    uint64_t bytes = 0;

    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        if (s->layer[i].sliding == (g == MODEL_SLIDING)) {
            bytes += shape_kv_token_bytes(s, i) * MODEL_PAGE_TOK;
        }
    }
    return bytes;
}
