/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The lines about drafting in the log. Owns the counters as they were when the
 * last one was written; the counters are the model's. Engine thread.
 *
 * The words are those of vLLM's line (model-spec 3.6), so that whoever watches
 * logs for one can watch for the other: means and rates are of the interval,
 * positions are unconditional (position i counts where all before it were
 * accepted too).
 */

#include "daemon/sched/spec.h"

#include <stdio.h>

void spec_log_init(struct spec_log *l, uint64_t now_us,
                   const struct model_stats *s)
{
    *l = (struct spec_log){.at_us = now_us, .last = *s};
}

static void write_line(const struct model_stats *a, const struct model_stats *b,
                       double seconds, char *line, size_t n)
{
    double drafts = (double)(b->drafts - a->drafts);
    double drafted = (double)(b->drafted - a->drafted);
    double accepted = (double)(b->accepted - a->accepted);
    double at[MODEL_MAX_DRAFTS];

    for (int i = 0; i < MODEL_MAX_DRAFTS; i++) {
        at[i] = (double)(b->accepted_at[i] - a->accepted_at[i]) / drafts;
    }
    (void)snprintf(line, n,
                   "SpecDecoding metrics: Mean acceptance length: %.2f, "
                   "Accepted throughput: %.2f tokens/s, Drafted throughput: "
                   "%.2f tokens/s, Accepted: %.0f tokens, Drafted: %.0f "
                   "tokens, Per-position acceptance rate: %.3f, %.3f, %.3f, "
                   "Avg Draft acceptance rate: %.1f%%",
                   1 + accepted / drafts, accepted / seconds, drafted / seconds,
                   accepted, drafted, at[0], at[1], at[2],
                   100 * accepted / drafted);
}

int spec_log_line(struct spec_log *l, uint64_t now_us,
                  const struct model_stats *s, char *line, size_t n)
{
    if (s->drafter_is_off && !l->warned) {
        l->warned = true;
        (void)snprintf(line, n,
                       "the drafter is switched off: too few of its drafts "
                       "are accepted to be worth a step; are the MTP layers "
                       "of this checkpoint its own?");
        return 4;
    }
    if (now_us - l->at_us < SPEC_LOG_US) {
        return 0;
    }
    if (s->drafts == l->last.drafts) {
        l->at_us = now_us; /* the next interval begins with the next draft */
        return 0;
    }
    write_line(&l->last, s, (double)(now_us - l->at_us) / 1e6, line, n);
    l->at_us = now_us;
    l->last = *s;
    return 6;
}
