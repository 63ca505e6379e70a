/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * tokenizer.json: whatever it says must load or be refused with a reason; what
 * loads must give a text back byte for byte, or say that a pattern took too
 * long.
 */
#include <errno.h>
#include <string.h>

#include "daemon/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static const char TEXT[] =
    "Hello, world!  12345\n\n<a>ab abc</a>\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98"
    "\x80\xff\0 the end\t\r\n";

static void check(const struct tokenizer *t, bool special)
{
    int32_t *ids = NULL;
    int n = 0, cap = 0;
    size_t off = 0;
    int r = tokenizer_encode(t, TEXT, sizeof(TEXT) - 1, special, 1 << 20, &ids,
                             &n, &cap);

    FUZZ_CHECK(r == 0 || r == -ELOOP);
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], &len);

        FUZZ_CHECK(bytes != NULL && len <= sizeof(TEXT) - 1 - off);
        FUZZ_CHECK(memcmp(bytes, TEXT + off, len) == 0);
        off += len;
    }
    FUZZ_CHECK(r != 0 || off == sizeof(TEXT) - 1);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tokenizer *t;
    char why[128] = "";

    if (tokenizer_load_json(&t, (const char *)data, n, why, sizeof(why)) < 0) {
        FUZZ_CHECK(why[0] != '\0');
        return 0;
    }
    check(t, false);
    check(t, true);
    tokenizer_destroy(t);
    return 0;
}
