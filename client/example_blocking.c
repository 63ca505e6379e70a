/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The blocking way: one question, the answer as it comes, what it took.
 *
 *     cc example_blocking.c $(pkg-config --cflags --libs stepclient)
 *     ./a.out "What is the capital of Kenya?"
 *
 * For programs that have nothing else to do until the answer is there. Whoever
 * has more to do than wait reads example_poll.c and example_ev.c next.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stepd/client.h>

/* Called with each event of the request, the last one included. */
static void on_event(void *ctx, const struct step_event *e)
{
    const char *text, *kind, *reason;
    size_t n, n_kind, n_reason;
    int64_t n_tokens;

    (void)ctx;
    switch (step_event_type(e)) {
    case STEP_EVENT_DELTA:
        /* The model thinks aloud first; here only its answer is wanted. Text is
         * not NUL-terminated, and a delta may have none. */
        text = step_event_text(e, &n);
        if (text != NULL &&
            step_event_get_str(e, "kind", &kind, &n_kind) == 0 && n_kind == 7 &&
            memcmp(kind, "content", 7) == 0) {
            fwrite(text, 1, n, stdout);
            fflush(stdout);
        }
        break;
    case STEP_EVENT_DONE:
        printf("\n");
        if (step_event_get_int(e, "usage.completion_tokens", &n_tokens) == 0 &&
            step_event_get_str(e, "finish_reason", &reason, &n_reason) == 0) {
            fprintf(stderr, "%lld tokens, ended by %.*s\n", (long long)n_tokens,
                    (int)n_reason, reason);
        }
        break;
    case STEP_EVENT_ERROR:
        /* step_client_call returns the code; the words are only here. */
        if (step_event_get_str(e, "message", &text, &n) == 0) {
            fprintf(stderr, "%.*s\n", (int)n, text);
        }
        break;
    default:
        /* accepted, progress, and what a later daemon may send. */
        break;
    }
}

int main(int argc, char **argv)
{
    struct step_client *c = NULL;
    struct step_request *r = NULL;
    const char *question = argc > 1 ? argv[1] : "Who are you?";

    int err = step_client_create(&c);
    if (err == 0) {
        /* NULL: where STEPD_SOCKET says, or where the system's daemon is. */
        err = step_client_connect(c, NULL);
    }
    if (err == 0) {
        err = step_request_create(&r, "generate");
    }
    if (err == 0) {
        /* A setter that fails is remembered, and told by step_client_call. */
        step_request_add_message(r, "user", question, strlen(question));
        step_request_set_int(r, "max_tokens", 200);
        step_request_set_real(r, "temperature", 0);
        err = step_client_call(c, r, on_event, NULL);
    }
    if (err < 0) {
        fprintf(stderr, "%s\n", step_strerror(err));
    }
    step_request_destroy(r);
    step_client_destroy(c);
    return err == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
