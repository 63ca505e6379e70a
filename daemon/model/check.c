/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * model_check: what a start would find, from headers alone, and whether there
 * is something to compute with. Loads nothing. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "daemon/model/plan.h"
#include "daemon/model/state.h"
#include "daemon/model/weights.h"

static int check_backend(const struct model_conf *c, struct report *rep)
{
    struct model_conf one = *c;
    struct kern *k = NULL;
    int r;

    one.n_threads = 1;
    r = model_open_backend(&one, NULL, &k, rep);
    kern_close(k);
    return r;
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
    r = plan_memory(ck, 0, &rep, &info.memory);
    if (r == 0) {
        info.max_model_len = info.memory.max_model_len;
    }
    if (r == 0 && c->backend != NULL) {
        r = check_backend(c, &rep);
    }
    report_finish(&rep, to);
    checkpoint_close(ck);
    *ret_info = info;
    return r;
}
