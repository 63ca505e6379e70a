/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Messages and tools: a line with a digit (1 thinking, 2 generation prompt,
 * 4 reasoning effort), a line of messages, the rest tools. Whatever comes must
 * render or be refused; what renders must be in order, and as ids must be its
 * own text again, with no more control tokens than the template put there.
 */
#include <string.h>

#include "daemon/text/chat.h"
#include "daemon/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

static const struct tokenizer *tokenizer(void)
{
    static struct tokenizer *t;

    if (t == NULL) {
        FUZZ_CHECK(tokenizer_load(&t, TEST_SRCDIR "/tests/data/step-tiny", NULL,
                                  0) == 0);
    }
    return t;
}

/* The piece that byte off lies in. */
static const struct chat_piece *piece_at(const struct chat_prompt *p,
                                         size_t off)
{
    for (int i = 0; i < p->n_pieces; i++) {
        if (off < p->piece[i].off + p->piece[i].n) {
            return &p->piece[i];
        }
    }
    return NULL;
}

static void check_prompt(const struct chat_prompt *p)
{
    const struct tokenizer *t = tokenizer();
    int32_t first_added = tokenizer_id(t, "<|im_start|>");
    size_t off = 0;
    int32_t *ids;
    int n;

    for (int i = 0; i < p->n_pieces; i++) {
        FUZZ_CHECK(p->piece[i].off == off && p->piece[i].n > 0);
        off += p->piece[i].n;
    }
    FUZZ_CHECK(off == p->n);
    FUZZ_CHECK(chat_tokenize(t, p, 1 << 24, &ids, &n) == 0);
    FUZZ_CHECK(n >= 1 && ids[0] == tokenizer_bos(t));
    off = 0;
    for (int i = 1; i < n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids[i], &len);

        FUZZ_CHECK(bytes != NULL && len <= p->n - off);
        FUZZ_CHECK(memcmp(bytes, p->text + off, len) == 0);
        if (ids[i] >= first_added || ids[i] < 3) {
            FUZZ_CHECK(!piece_at(p, off)->from_user);
        }
        off += len;
    }
    FUZZ_CHECK(off == p->n);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    const char *line = n >= 2 ? memchr(text + 2, '\n', n - 2) : NULL;
    struct chat_args a = {0};
    struct chat_prompt p = {0};
    char why[128] = "";
    int flags;

    if (n < 2) {
        return 0;
    }
    flags = text[0];
    a.messages = text + 2;
    a.n_messages = (line != NULL ? (size_t)(line - text) : n) - 2;
    if (line != NULL && line + 1 < text + n) {
        a.tools = line + 1;
        a.n_tools = (size_t)(text + n - a.tools);
    }
    a.thinking = (flags & 1) != 0;
    a.generate = (flags & 2) != 0;
    a.reasoning = (flags & 4) != 0 ? "high" : NULL;
    if (chat_render(&a, &p, why, sizeof(why)) == 0) {
        check_prompt(&p);
    } else {
        FUZZ_CHECK(why[0] != '\0');
    }
    chat_prompt_finish(&p);
    return 0;
}
