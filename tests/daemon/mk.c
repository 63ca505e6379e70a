/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * See mk.h. The "guard" backend lives in guard.c.
 */

#include "tests/daemon/mk.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>

#include "daemon/model/safetensors.h"
#include "daemon/model/state.h"
#include "kernels/plugin.h"
#include "tests/daemon/guard.h"

const struct mk_backend mk_ref = {"ref", NULL, 1};
const struct mk_backend mk_guard = {"guard", NULL, 1};

const struct model_sampling mk_greedy = {
    .top_p = 1, .repetition = 1, .n_top = 0, .max_drafts = 0};

/* ---- backends ---- */

static const struct mk_backend all[] = {
    {"ref", NULL, 1},     {"cpu", "portable", 1},   {"cpu", "avx2", 1},
    {"cpu", "avx512", 1}, {"cpu", "avx512bf16", 1}, {"cpu", "neonbf16", 1},
    {"cpu", NULL, 2},
};
enum { N_ALL = sizeof(all) / sizeof(all[0]) };

/* KT_BACKEND=cuda-emulated or cuda: that one alone (tests/cuemu). */
static const struct mk_backend asked[] = {
    {"cuda-emulated", NULL, 1},
    {"cuda", NULL, 1},
};

static const struct mk_backend *candidate(int i)
{
    const char *name = getenv("KT_BACKEND");

    for (size_t j = 0; name != NULL && j < 2; j++) {
        if (strcmp(asked[j].name, name) == 0) {
            return i == 0 ? &asked[j] : NULL;
        }
    }
    return i < N_ALL ? &all[i] : NULL;
}

static const struct kern_ops *ops_of(const struct mk_backend *b)
{
    char why[512];

    if (strncmp(b->name, "cuda", 4) == 0) {
        return kern_plugin_load(b->name, NULL, why, sizeof(why));
    }
    return strcmp(b->name, "guard") == 0 ? &guard_ops
           : strcmp(b->name, "ref") == 0 ? &kern_ref_ops
                                         : kern_find(b->name);
}

static const struct mk_backend *runnable(int i, int *ret_n)
{
    static const struct mk_backend *list[N_ALL];
    static int n = -1;

    if (n < 0) {
        n = 0;
        for (int j = 0; candidate(j) != NULL; j++) {
            const struct mk_backend *b = candidate(j);
            struct kern_open_args a = {
                .n_threads = 1, .isa = b->isa, .exact = true};
            const struct kern_ops *ops = ops_of(b);
            struct kern *k;

            if (ops != NULL && kern_open(ops, &a, &k) == 0) {
                kern_close(k);
                list[n++] = b;
            }
        }
    }
    *ret_n = n;
    return i < n ? list[i] : NULL;
}

int mk_n_backends(void)
{
    int n;

    runnable(0, &n);
    return n;
}

const struct mk_backend *mk_backend(int i)
{
    int n;

    return runnable(i, &n);
}

const struct mk_backend *mk_best(void)
{
    return mk_backend(mk_n_backends() - 1);
}

bool mk_is_slow(const struct mk_backend *b)
{
    return strcmp(b->name, "cpu") != 0 ||
           (b->isa != NULL && strcmp(b->isa, "portable") == 0);
}

/* ---- a model ---- */

void mk_ok_(const struct mk *k, int r, const char *file, int line)
{
    if (r < 0) {
        print_error("%s: %s (%s)\n", k->name, strerror(-r),
                    k->m != NULL ? model_error(k->m) : "");
        _fail(file, line);
    }
}

struct mk *mk_open(const char *path, const struct mk_backend *b, int drafts,
                   int max_rows)
{
    return mk_open_as(path, b, drafts, max_rows, MODEL_MAP, NULL, NULL);
}

struct mk *mk_open_as(const char *path, const struct mk_backend *b, int drafts,
                      int max_rows, enum model_weights weights,
                      const char *state_dir, char *notes)
{
    struct mk *k = calloc(1, sizeof(*k));
    struct model_report rep = {0};
    int r;

    assert_non_null(k);
    snprintf(k->name, sizeof(k->name), "%s %s", b->name,
             b->isa != NULL ? b->isa : "");
    k->conf.path = path;
    k->conf.backend = b->name;
    k->conf.isa = b->isa;
    k->conf.n_threads = b->n_threads;
    k->conf.max_model_len = MK_MAX;
    k->conf.max_seqs = 16;
    k->conf.max_rows = max_rows > 0 ? max_rows : 512;
    k->conf.drafts = drafts;
    /* Each page is scrubbed below, and there each scrub opens all doors. */
    k->conf.kv_bytes = strcmp(b->name, "guard") == 0 ? 10 << 20 : 40 << 20;
    k->conf.weights = weights;
    k->conf.state_dir = state_dir;
    r = model_open_on(&k->m, &k->conf, ops_of(b), &rep);
    for (int i = 0; i < rep.n_problems; i++) {
        print_error("%s\n", rep.problem[i]);
    }
    for (int i = 0, at = 0; notes != NULL && i < rep.n_notes; i++) {
        at +=
            snprintf(notes + at, (size_t)(MK_NOTES - at), "%s\n", rep.note[i]);
        assert_true(at < MK_NOTES);
    }
    model_report_finish(&rep);
    mk_ok(k, r);
    k->info = model_info(k->m);
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        for (int p = 0; p < k->info->memory.kv_pages[g]; p++) {
            mk_ok(k, model_scrub_page(k->m, g, p));
        }
    }
    return k;
}

void mk_close(struct mk *k)
{
    model_close(k->m);
    free(k);
}

/* ---- requests ---- */

void mk_start(struct mk *k, struct mk_req *r, const struct model_sampling *p,
              const int32_t *prompt, int n_prompt, int max_new)
{
    memset(r, 0, sizeof(*r));
    r->p = *p;
    r->cut = -1;
    r->max_new = max_new;
    r->n_prompt = r->n_ids = n_prompt;
    assert_true(n_prompt + max_new + MODEL_MAX_DRAFTS + 1 <= MK_MAX);
    memcpy(r->ids, prompt, (size_t)n_prompt * sizeof(*prompt));
    r->n_pages = (n_prompt + max_new + MODEL_MAX_DRAFTS) / MODEL_PAGE_TOK + 1;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        for (int i = 0; i < r->n_pages; i++) {
            /* backwards, so that no test passes by pages being in order */
            r->page[g][i] = k->info->memory.kv_pages[g] - 1 - k->n_used[g]++;
            assert_true(r->page[g][i] >= 0);
        }
    }
    mk_ok(k, model_seq_open(k->m, p, prompt, n_prompt, 0, &r->seq));
}

void mk_end(struct mk *k, struct mk_req *r)
{
    model_seq_close(k->m, r->seq);
}

void mk_reuse_pages(struct mk *k)
{
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        int n = k->info->memory.kv_pages[g];

        for (int i = 1; i <= k->n_used[g]; i++) {
            mk_ok(k, model_scrub_page(k->m, g, n - i));
        }
        k->n_used[g] = 0;
    }
}

/* Sliding pages that the next row cannot see any more become NaN. */
static void forget_pages(struct mk *k, struct mk_req *r)
{
    int low = (r->len - k->info->window + 1) / MODEL_PAGE_TOK;

    for (int i = 0; !r->keep && i < low; i++) {
        if (r->page[MODEL_SLIDING][i] >= 0) {
            mk_ok(k, model_scrub_page(k->m, MODEL_SLIDING,
                                      r->page[MODEL_SLIDING][i]));
            r->page[MODEL_SLIDING][i] = -1;
        }
    }
}

struct model_span mk_span(struct mk *k, struct mk_req *r, int max_rows,
                          int32_t *ids)
{
    struct model_span s = {.seq = r->seq,
                           .pos = r->len,
                           .draft_next = r->p.max_drafts,
                           .next_id = -1};
    int32_t draft[MODEL_MAX_DRAFTS];
    int n = r->n_ids - r->len, pending = model_drafts(k->m, r->seq, draft);

    forget_pages(k, r);
    s.n_rows = n;
    if (r->chunk > 0 && n > r->chunk) {
        s.n_rows = r->chunk;
    }
    s.n_rows = s.n_rows > max_rows ? max_rows : s.n_rows;
    s.want = s.n_rows == n ? MODEL_WANT_DRAW : MODEL_WANT_NONE;
    memcpy(ids, r->ids + r->len, (size_t)s.n_rows * sizeof(*ids));
    if (n == 1) {
        s.n_draft = r->cut >= 0 && pending > r->cut ? r->cut : pending;
        if (s.n_draft > max_rows - 1) {
            s.n_draft = max_rows - 1;
        }
        memcpy(ids + 1, draft, (size_t)s.n_draft * sizeof(*ids));
        s.n_rows += s.n_draft;
    }
    s.ids = ids;
    for (int g = 0; g < MODEL_N_GROUPS; g++) {
        s.pages[g] = r->page[g];
        s.n_pages[g] = r->n_pages;
    }
    return s;
}

static bool is_eos(const struct mk *k, int32_t id)
{
    for (int i = 0; i < k->info->n_eos; i++) {
        if (k->info->eos[i] == id) {
            return true;
        }
    }
    return false;
}

void mk_take(struct mk *k, struct mk_req *r, const struct model_span *s,
             const struct model_out *o)
{
    assert_int_equal(o->status, 0);
    assert_int_equal(o->layer, -1);
    r->len = o->committed;
    assert_int_equal(r->len, model_seq_len(k->m, r->seq));
    for (int i = 0; i < o->n_tokens && !r->done; i++) {
        r->logprob[r->n_ids] = o->token[i].logprob;
        r->ids[r->n_ids++] = o->token[i].id;
        r->done = r->n_ids - r->n_prompt == r->max_new ||
                  (r->eos && is_eos(k, o->token[i].id));
        r->n_accepted += i < o->n_accepted;
    }
    if (s->n_draft > 0) {
        r->n_drafts++;
        r->n_drafted += o->n_drafted;
        assert_int_equal(o->n_drafted, s->n_draft);
    }
}

void mk_assert_same(const char *what, int i, const struct mk_req *a,
                    const struct mk_req *b)
{
    assert_int_equal(a->n_ids, b->n_ids);
    for (int j = a->n_prompt; j < a->n_ids; j++) {
        if (a->ids[j] != b->ids[j] ||
            memcmp(&a->logprob[j], &b->logprob[j], sizeof(float)) != 0) {
            fail_msg("%s: request %d, position %d: %d %a, expected %d %a", what,
                     i, j, a->ids[j], (double)a->logprob[j], b->ids[j],
                     (double)b->logprob[j]);
        }
    }
}

void mk_step(struct mk *k, struct mk_req **r, int n)
{
    static int32_t ids[64][MK_MAX];
    struct model_span span[64];
    struct model_out out[64];
    struct mk_req *of[64];
    int n_spans = 0, left = k->conf.max_rows, waiting = 0;
    struct model_plan plan = {.span = span};

    for (int i = 0; i < n; i++) {
        waiting += !r[i]->done;
    }
    for (int i = 0; i < n; i++) {
        if (r[i]->done) {
            continue;
        }
        /* one row at least for each of the others */
        waiting--;
        span[n_spans] = mk_span(k, r[i], left - waiting, ids[n_spans]);
        left -= span[n_spans].n_rows;
        of[n_spans++] = r[i];
    }
    plan.n_spans = n_spans;
    mk_ok(k, model_submit(k->m, &plan));
    mk_ok(k, model_collect(k->m, out, n_spans));
    for (int i = 0; i < n_spans; i++) {
        mk_take(k, of[i], &span[i], &out[i]);
    }
}

void mk_run(struct mk *k, struct mk_req **r, int n)
{
    for (;;) {
        bool any = false;

        for (int i = 0; i < n; i++) {
            any = any || !r[i]->done;
        }
        if (!any) {
            return;
        }
        mk_step(k, r, n);
    }
}

/* ---- golden data ---- */

float *mk_golden(const char *folder, const char *name, int *ret_rows,
                 int *ret_cols)
{
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct report rep;
    struct st_file f;
    float *data = NULL;

    assert_true(dir >= 0);
    report_init(&rep);
    st_open(dir, "golden.safetensors", &rep, &f);
    assert_false(f.bad);
    for (int i = 0; i < f.n_tensors; i++) {
        const struct st_tensor *t = &f.tensor[i];

        if (strcmp(t->name, name) != 0) {
            continue;
        }
        assert_int_equal(t->dtype, ST_F32);
        data = malloc(t->end - t->begin);
        assert_non_null(data);
        assert_int_equal(st_read(&f, t->begin, data, t->end - t->begin), 0);
        *ret_rows = (int)t->dim[0];
        *ret_cols = t->n_dims > 1 ? (int)t->dim[1] : 1;
    }
    if (data == NULL) {
        fail_msg("%s: no %s", folder, name);
    }
    st_close(&f);
    report_finish(&rep, NULL);
    close(dir);
    return data;
}

static int ints_of(const json_t *list, int32_t *ret)
{
    size_t n = json_array_size(list);

    assert_in_range(n, 1, MK_MAX);
    for (size_t i = 0; i < n; i++) {
        ret[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return (int)n;
}

const struct mk_case *mk_cases(double *ret_mean)
{
    static struct mk_case cases[MK_N_CASES];
    static double mean;
    json_t *root, *list;

    if (mean == 0) {
        root =
            json_load_file(test_data("step-tiny/golden-greedy.json"), 0, NULL);
        assert_non_null(root);
        list = json_object_get(root, "cases");
        assert_int_equal(json_array_size(list), MK_N_CASES);
        for (int i = 0; i < MK_N_CASES; i++) {
            json_t *c = json_array_get(list, (size_t)i);
            json_t *gaps = json_object_get(c, "gaps");

            cases[i].n_prompt =
                ints_of(json_object_get(c, "prompt_ids"), cases[i].prompt);
            cases[i].n_greedy =
                ints_of(json_object_get(c, "greedy_ids"), cases[i].greedy);
            assert_int_equal(json_array_size(gaps), cases[i].n_greedy);
            for (int j = 0; j < cases[i].n_greedy; j++) {
                cases[i].gap[j] =
                    json_number_value(json_array_get(gaps, (size_t)j));
            }
        }
        mean = json_number_value(
            json_object_get(root, "mean_acceptance_length_depth3"));
        json_decref(root);
    }
    if (ret_mean != NULL) {
        *ret_mean = mean;
    }
    return cases;
}
