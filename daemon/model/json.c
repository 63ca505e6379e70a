/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Parses config.json, the index and the shards' headers. Owns nothing; any
 * thread. What matters: want of memory is never taken for a damaged file, which
 * would not be tried again.
 */
#include "daemon/model/json.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/base/jmem.h"

__attribute__((constructor)) static void watch_jansson(void)
{
    json_set_alloc_funcs(jmem_alloc, free);
}

int model_json(const char *text, size_t n, json_t **ret, json_error_t *error)
{
    unsigned refused = jmem_refused();

    *ret = json_loadb(text, n, JSON_REJECT_DUPLICATES, error);
    if (jmem_refused() != refused) {
        json_decref(*ret);
        *ret = NULL;
        return -ENOMEM;
    }
    return *ret != NULL ? 0 : -EBADMSG;
}
