/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * config.json: whatever it says, reading it ends with problems or with a shape
 * that everything after it may trust.
 */
#include <stdlib.h>

#include "daemon/model/config.h"
#include "daemon/model/plan.h"
#include "daemon/model/quant.h"
#include "daemon/model/slots.h"
#include "tests/fuzz/fuzz.h"

static void require(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void check_shape(const struct shape *s)
{
    float freq[KERN_HEAD_DIM];
    struct slots slots;
    uint64_t bytes = 0;

    require(s->n_layers >= 1 && s->n_layers <= SHAPE_MAX_LAYERS);
    require(s->n_mtp >= 0 && s->n_mtp <= SHAPE_MAX_MTP);
    require(s->n_eos <= SHAPE_MAX_EOS && s->bos < s->vocab);
    for (int i = 0; i < s->n_eos; i++) {
        require(s->eos[i] >= 0 && s->eos[i] < s->vocab);
    }
    for (int i = 0; i < s->n_layers + s->n_mtp; i++) {
        const struct shape_layer *l = &s->layer[i];

        require(l->n_head >= 1 && l->n_head % l->n_kv_head == 0);
        require(l->n_freq >= 1 && l->n_freq <= KERN_HEAD_DIM / 2);
        require(l->sliding ? l->window >= 1 : l->window == 0);
        require(l->moe ? s->n_expert >= s->top_k && s->top_k >= 1
                       : l->width >= 1);
        shape_freqs(s, i, freq);
        for (int j = 0; j < l->n_freq; j++) {
            require(freq[j] >= 0 && freq[j] <= 1);
        }
    }
    require(plan_activations(s, 1, 1, s->max_model_len, &bytes) == 0);
    require(bytes > 0);
    require(slots_init(&slots, s) == 0);
    for (int i = 0; i < slots.n; i++) {
        require(slots.slot[i].desc.rows >= 1 && slots.slot[i].desc.cols >= 1);
    }
    slots_finish(&slots);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct report rep;
    struct shape shape;
    struct slots none = {0};
    json_t *quant = NULL;
    int r;

    report_init(&rep);
    r = config_parse((const char *)data, n, &rep, &shape, &quant);
    require((r == 0) == (rep.n_problems == 0));
    if (r == 0) {
        check_shape(&shape);
        quant_check(quant, &none, &rep);
    }
    report_finish(&rep, NULL);
    json_decref(quant);
    return 0;
}
