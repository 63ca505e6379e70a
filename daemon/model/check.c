/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * model_check: what a start would find, from headers alone, and whether there
 * is something to compute with. Loads nothing. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "daemon/model/mode.h"
#include "daemon/model/plan.h"
#include "daemon/model/state.h"
#include "daemon/model/weights.h"

/* The plan on the backend that would compute; without a name, on the host. */
static int check_memory(struct checkpoint *ck, const struct model_conf *c,
                        struct report *rep, struct model_memory *ret)
{
    struct model_conf one = *c;
    struct kern *k = NULL;
    int r, opened = 0;

    one.n_threads = 1;
    if (c->backend != NULL) {
        opened = model_open_backend(ck, &one, NULL, &k, rep, ret);
    }
    r = k != NULL ? 0 : mode_choose(ck, NULL, MODE_LEAST_BYTES, rep);
    r = k != NULL || r < 0 ? r : plan_memory(ck, NULL, 0, rep, ret);
    kern_close(k);
    return r < 0 ? r : opened;
}

int model_check(const struct model_conf *c, struct model_report *to,
                struct model_info *ret_info)
{
    struct checkpoint *ck;
    struct model_info info;
    struct report rep;
    int r = checkpoint_open(c, to, &ck);

    if (r < 0) {
        return r;
    }
    report_init(&rep);
    checkpoint_info(ck, &info);
    r = check_memory(ck, c, &rep, &info.memory);
    if (r == 0) {
        info.max_model_len = info.memory.max_model_len;
    }
    report_finish(&rep, to);
    checkpoint_close(ck);
    *ret_info = info;
    return r;
}
