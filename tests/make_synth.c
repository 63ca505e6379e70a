/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * make_synth PRESET DIALECT DIR [KEY=VALUE]...: tests/synth for scripts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/synth.h"

static const char *const dialects[SYNTH_N_DIALECTS] = {
    [SYNTH_BF16] = "bf16",         [SYNTH_MXFP4] = "mxfp4",
    [SYNTH_FP8] = "fp8",           [SYNTH_NVFP4] = "nvfp4",
    [SYNTH_NVFP4_CT] = "nvfp4-ct", [SYNTH_QUARK] = "quark",
};

static bool set(struct synth *s, const char *arg)
{
    const char *value = strchr(arg, '=');
    size_t n = value != NULL ? (size_t)(value - arg) : 0;
    const struct {
        const char *key;
        int *at;
    } ints[] = {
        {"vocab", &s->vocab},       {"layers", &s->n_layers},
        {"mtp", &s->n_mtp},         {"dense", &s->n_dense},
        {"experts", &s->n_expert},  {"shards", &s->n_shards},
        {"first_id", &s->first_id}, {"max_len", &s->max_len},
    };

    if (value == NULL) {
        return false;
    }
    value++;
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
        if (strlen(ints[i].key) == n && strncmp(arg, ints[i].key, n) == 0) {
            *ints[i].at = atoi(value);
            return true;
        }
    }
    if (strncmp(arg, "accept=", 7) == 0) { /* a cycle, with that acceptance */
        s->cycle = true;
        s->accept[0] = s->accept[1] = s->accept[2] = atof(value);
    } else if (strncmp(arg, "tokenizer=", 10) == 0) {
        s->tokenizer = value;
    } else if (strncmp(arg, "seed=", 5) == 0) {
        s->seed = strtoull(value, NULL, 10);
    } else if (strcmp(arg, "sparse=1") == 0) {
        s->sparse = true;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct synth s;
    int dialect = SYNTH_N_DIALECTS, r;

    for (int i = 0; argc > 3 && i < SYNTH_N_DIALECTS; i++) {
        dialect = strcmp(argv[2], dialects[i]) == 0 ? i : dialect;
    }
    if (argc < 4 || dialect == SYNTH_N_DIALECTS || !synth_preset(&s, argv[1])) {
        fprintf(stderr, "usage: make_synth micro|small|slice|real "
                        "bf16|mxfp4|fp8|nvfp4|nvfp4-ct|quark DIR "
                        "[KEY=VALUE]...\n");
        return 64;
    }
    s.dialect = (enum synth_dialect)dialect;
    for (int i = 4; i < argc; i++) {
        if (!set(&s, argv[i])) {
            fprintf(stderr, "make_synth: %s?\n", argv[i]);
            return 64;
        }
    }
    r = synth_write(&s, argv[3]);
    if (r < 0) {
        fprintf(stderr, "make_synth: %s: %s\n", argv[3], strerror(-r));
    }
    return r < 0 ? 1 : 0;
}
