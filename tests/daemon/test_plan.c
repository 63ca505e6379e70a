/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The memory plan: the published sizes to the byte, pages, what fits where
 * memory is short, and how free memory is found.
 */
#include "daemon/model/plan.h"

#include <errno.h>
#include <sys/stat.h>

#include "daemon/model/available.h"
#include "daemon/model/config.h"
#include "daemon/model/state.h"
#include "tests/ckpt.h"
#include "tests/test.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static struct shape real_shape(void)
{
    FILE *f = fopen(test_data("config-step-3.7-flash.json"), "rb");
    static char text[65536];
    struct report rep;
    struct shape s;
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof(text), f);
    fclose(f);
    report_init(&rep);
    assert_int_equal(config_parse(text, n, &rep, &s, NULL), 0);
    return s;
}

/* ---- weights ------------------------------------------------------------- */

/* The table of model-spec 10, trunk and MTP, to the byte. */
static void test_published_sizes_of_the_real_model(void **state)
{
    static const struct {
        enum scheme scheme;
        uint64_t experts, trunk, with_mtp;
    } known[] = {
        {SCHEME_BF16, 380507258880u, 393912284928u, 398768626944u},
        {SCHEME_FP8, 190300078080u, 203705104128u, 208561446144u},
        {SCHEME_MXFP4, 101072240640u, 114477266688u, 119333608704u},
        {SCHEME_MXFP4_QUARK, 101072240640u, 114477266688u, 119333608704u},
        {SCHEME_NVFP4, 107017956864u, 120422982912u, 125279324928u},
        /* The same without the input_scale of 42 * 3 * 288 matrices. */
        {SCHEME_NVFP4_CT, 107017811712u, 120422837760u, 125279179776u},
    };
    struct shape s = real_shape();

    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct model_memory m = {0};
        uint64_t trunk;

        assert_int_equal(plan_weights(&s, known[i].scheme, &m), 0);
        trunk = m.weights_bf16 + m.weights_experts + m.weights_other;
        assert_int_equal(m.weights_experts, known[i].experts);
        assert_int_equal(trunk, known[i].trunk);
        assert_int_equal(m.weights_other, 42 * 288 * 4);
        assert_int_equal(m.weights_mtp, 4856342016u);
        assert_int_equal(trunk + m.weights_mtp, known[i].with_mtp);
    }
}

/* What the plan says of a dialect is what a checkpoint of it holds. */
static void test_planned_weights_are_those_of_the_files(void **state)
{
    static const enum scheme schemes[SYNTH_N_DIALECTS] = {
        [SYNTH_BF16] = SCHEME_BF16,         [SYNTH_MXFP4] = SCHEME_MXFP4,
        [SYNTH_FP8] = SCHEME_FP8,           [SYNTH_NVFP4] = SCHEME_NVFP4,
        [SYNTH_NVFP4_CT] = SCHEME_NVFP4_CT, [SYNTH_QUARK] = SCHEME_MXFP4_QUARK,
    };

    (void)state;
    for (int d = 0; d < SYNTH_N_DIALECTS; d++) {
        struct synth s;
        struct model_conf c = {.drafts = -1};
        struct checkpoint *ck;
        struct model_memory m = {0};
        uint64_t bytes = 0;
        char *dir;

        assert_true(synth_preset(&s, "micro"));
        s.dialect = (enum synth_dialect)d;
        dir = ckpt_synth(&s);
        c.path = dir;
        assert_int_equal(checkpoint_open(&c, NULL, &ck), 0);
        for (int i = 0; i < ck->n_files; i++) {
            bytes += ck->file[i].size - ck->file[i].data;
        }
        assert_int_equal(plan_weights(&ck->shape, schemes[d], &m), 0);
        assert_int_equal(m.weights_bf16 + m.weights_experts + m.weights_other +
                             m.weights_mtp,
                         bytes);
        checkpoint_close(ck);
        ckpt_remove(dir);
    }
}

/* The whole real checkpoint by its headers (the data are holes): 73,254 tensors
 * find their places, and the plan is that of the table. */
static void test_a_checkpoint_of_the_real_size(void **state)
{
    struct synth s;
    struct model_conf c = {.drafts = -1};
    struct model_report rep = {0};
    struct model_info info;
    char *dir;

    (void)state;
    assert_true(synth_preset(&s, "real"));
    s.sparse = true;
    dir = ckpt_synth(&s);
    c.path = dir;
    assert_int_equal(model_check(&c, &rep, &info), 0);
    assert_int_equal(rep.n_problems, 0);
    assert_string_equal(info.dialect, "compressed-tensors MXFP4");
    assert_int_equal(info.n_mtp, 3);
    assert_int_equal(info.memory.weights_experts, 101072240640u);
    assert_int_equal(info.memory.weights_bf16 + info.memory.weights_experts +
                         info.memory.weights_other,
                     114477266688u);
    assert_int_equal(info.memory.weights_mtp, 4856342016u);
    model_report_finish(&rep);
    ckpt_remove(dir);
}

/* ---- pages --------------------------------------------------------------- */

/* By trying every place in a page that the first slot may have. */
static int pages_by_hand(int window, int rows)
{
    int worst = 0;

    for (int first = 0; first < 64; first++) {
        int last = first + window - 1 + rows - 1;
        int n = last / 64 - first / 64 + 1;

        worst = n > worst ? n : worst;
    }
    return worst;
}

/* fr_52: what drafting adds to the cache is a window a session, whatever the
 * context. */
static void test_sliding_pages_of_a_session(void **state)
{
    (void)state;
    assert_int_equal(plan_sliding_pages(512, 1), 9);
    assert_int_equal(plan_sliding_pages(512, 2), 9);
    assert_int_equal(plan_sliding_pages(512, 3), 10);
    assert_int_equal(plan_sliding_pages(512, 4), 10); /* three drafts */
    for (int window = 1; window < 600; window += 7) {
        for (int rows = 1; rows < 200; rows += 3) {
            assert_int_equal(plan_sliding_pages(window, rows),
                             pages_by_hand(window, rows));
        }
    }
}

/* A checkpoint of nothing but a shape, for plans without files. */
static struct checkpoint *bare(const struct shape *s)
{
    struct checkpoint *ck = calloc(1, sizeof(*ck));

    assert_non_null(ck);
    ck->shape = *s;
    ck->dir = -1;
    ck->conf.drafts = -1;
    ck->conf.memory_utilization = 0.5;
    ck->conf.max_seqs = 4;
    ck->conf.max_rows = 256;
    assert_int_equal(slots_init(&ck->slots, &ck->shape), 0);
    for (int i = 0; i < ck->slots.n; i++) {
        struct slot *slot = &ck->slots.slot[i];

        if (role_is_expert(slot->role)) {
            slot->desc.dtype = KERN_MXFP4;
        }
        slot->filled = true;
    }
    return ck;
}

/* What comes out, and how the first problem (or note) begins. */
static struct model_memory plan(const struct checkpoint *ck, uint64_t available,
                                int expected, const char *text)
{
    struct report rep;
    struct model_report out = {0};
    struct model_memory m;
    const char *found = NULL;

    report_init(&rep);
    assert_int_equal(plan_memory(ck, NULL, available, &rep, &m), expected);
    report_finish(&rep, &out);
    found = out.n_problems > 0 ? out.problem[0]
            : out.n_notes > 0  ? out.note[0]
                               : NULL;
    if (text == NULL || found == NULL ? text != found
                                      : strncmp(found, text, strlen(text))) {
        fail_msg("found: %s, expected: %s", found, text);
    }
    model_report_finish(&out);
    return m;
}

static uint64_t total(const struct model_memory *m)
{
    return m->weights_bf16 + m->weights_experts + m->weights_other +
           m->weights_mtp + m->activations + m->kv_bytes + m->checkpoint_bytes;
}

static void test_plan_of_the_real_model_with_room(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory m = plan(ck, 512 * GIB, 0, NULL);

    (void)state;
    assert_int_equal(m.available, 512 * GIB);
    assert_int_equal(m.max_model_len, 262144);
    assert_int_equal(m.kv_page_bytes[MODEL_FULL], 3145728);
    assert_int_equal(m.kv_page_bytes[MODEL_SLIDING], 9437184);
    assert_int_equal(m.kv_pages[MODEL_FULL], 4 * 262144 / 64);
    assert_true(m.kv_pages[MODEL_SLIDING] >= 4 * 10 + 256 / 64);
    assert_int_equal(m.kv_bytes,
                     m.kv_pages[MODEL_FULL] * m.kv_page_bytes[MODEL_FULL] +
                         (uint64_t)m.kv_pages[MODEL_SLIDING] *
                             m.kv_page_bytes[MODEL_SLIDING]);
    assert_true(total(&m) <= 256 * GIB);
    checkpoint_close(ck);
}

/* ---- on a device ---- */

static uint64_t twice_a_value(const struct kern_weight_desc *d)
{
    return 2 * (uint64_t)d->rows * (uint64_t)d->cols *
           (d->experts > 0 ? (uint64_t)d->experts : 1);
}

static uint64_t a_gib_a_thousand_rows(const struct kern_sizes *s)
{
    assert_int_equal(s->rows, 256 + 4 * MODEL_MAX_DRAFTS);
    assert_int_equal(s->sampled_rows, 4 * (1 + MODEL_MAX_DRAFTS));
    assert_int_equal(s->n_head, 96);
    assert_int_equal(s->pages, 262144 / 64 + 1);
    return (uint64_t)s->rows * GIB / 1000;
}

/* What its backend may take is the whole room, weights lie in it in its own
 * layout though the file is mapped, and what ops keep is left free. */
static void test_plan_on_a_device(void **state)
{
    static const struct kern_ops ops = {.weight_bytes = twice_a_value,
                                        .scratch_bytes = a_gib_a_thousand_rows};
    struct kern k = {.ops = &ops, .memory = 500 * GIB};
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory host = plan(ck, 512 * GIB, 0, NULL), m;
    struct report rep;

    (void)state;
    ck->conf.weights = MODEL_MAP;
    report_init(&rep);
    assert_int_equal(plan_memory(ck, &k, 0, &rep, &m), 0);
    report_finish(&rep, NULL);
    assert_int_equal(m.available, 500 * GIB);
    assert_true(m.weights_experts > 3 * host.weights_experts);
    assert_int_equal(m.activations - host.activations, 268 * GIB / 1000);
    assert_true(total(&m) <= 500 * GIB);
    assert_true(total(&m) > 400 * GIB);

    k.memory = 300 * GIB; /* not even the weights: 383 GiB */
    report_init(&rep);
    assert_int_equal(plan_memory(ck, &k, 0, &rep, &m), -EBADMSG);
    report_finish(&rep, NULL);
    checkpoint_close(ck);
}

/* A plan for one session in 240 GiB, of which half may be taken, and the
 * context that fits by hand: one session and the rows of a step take 11 and 4
 * sliding pages and the vectors of 1024 checkpoints 48 KiB each, the rest is
 * for full ones. */
static struct model_memory plan_short(struct checkpoint *ck, int *ret_fits)
{
    struct report rep;
    struct model_memory m;

    ck->conf.weights = MODEL_COPY;
    ck->conf.max_seqs = 1;
    report_init(&rep);
    (void)plan_memory(ck, NULL, 240 * GIB, &rep, &m);
    report_finish(&rep, NULL);
    *ret_fits = (int)((120 * GIB - 119333608704u - m.activations -
                       m.checkpoint_bytes - 15 * (uint64_t)9437184) /
                      3145728 * 64);
    return m;
}

/* The largest context that fits, where config.json's does not. */
static void test_the_context_shrinks_to_what_fits(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory m;
    char text[128];
    int fits;

    (void)state;
    m = plan_short(ck, &fits);
    assert_in_range(fits, 150000, 200000);
    assert_int_equal(m.checkpoint_bytes, 1024 * (16 + 3 * 4096 * 4));
    assert_int_equal(m.max_model_len, fits);
    assert_int_equal(m.kv_pages[MODEL_SLIDING], 15);
    assert_true(total(&m) <= 120 * GIB);
    snprintf(text, sizeof(text),
             "max_model_len is %d tokens: the 262144 of config.json do not fit "
             "in memory",
             fits);
    plan(ck, 240 * GIB, 0, text);
    checkpoint_close(ck);
}

/* fr_91: a context that was asked for and does not fit is refused, with the one
 * that does. */
static void fr_91_an_asked_context_that_does_not_fit_is_refused(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    char text[128];
    int fits;

    (void)state;
    ck->conf.max_model_len = 200000;
    plan_short(ck, &fits);
    snprintf(text, sizeof(text),
             "max_model_len: expected at most %d tokens (what fits in memory), "
             "found 200000",
             fits);
    plan(ck, 240 * GIB, -E2BIG, text);
    ck->conf.max_model_len = fits;
    plan(ck, 240 * GIB, 0, NULL);
    ck->conf.max_model_len = 1000000;
    plan(ck, 512 * GIB, -E2BIG,
         "max_model_len: expected at most 262144 (config.json), found 1000000");
    checkpoint_close(ck);
}

static void test_weights_that_do_not_fit(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory m;

    (void)state;
    ck->conf.weights = MODEL_COPY;
    plan(ck, 64 * GIB, -EBADMSG,
         "not enough memory: weights take 113805 MiB, ");
    /* Mapped, they are page cache: slow, and said so. */
    ck->conf.weights = MODEL_MAP;
    m = plan(ck, 64 * GIB, 0,
             "the mapped weights (113805 MiB) are larger than the memory for "
             "them (32768 MiB): every step will read from the disk");
    assert_true(m.kv_bytes + m.activations <= 16 * GIB);
    checkpoint_close(ck);
}

static void test_an_asked_cache(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory m;

    (void)state;
    ck->conf.max_model_len = 4096;
    ck->conf.kv_bytes = 2 * GIB;
    m = plan(ck, 512 * GIB, 0, NULL);
    assert_true(m.kv_bytes <= 2 * GIB);
    assert_true(m.kv_bytes > 2 * GIB - 16 * MIB);
    assert_int_equal(m.kv_pages[MODEL_FULL], 4 * 64);
    ck->conf.kv_bytes = 1024 * GIB;
    ck->conf.max_model_len = 0;
    plan(ck, 512 * GIB, -E2BIG, "kv_memory: expected at most 15");
    checkpoint_close(ck);
}

/* Sliding pages for checkpoints, before full pages get the rest. */
static void test_an_asked_memory_for_checkpoints(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);
    struct model_memory a, b;

    (void)state;
    ck->conf.max_model_len = 65536;
    ck->conf.max_seqs = 4;
    ck->conf.kv_bytes = 20 * GIB;
    a = plan(ck, 512 * GIB, 0, NULL);
    ck->conf.checkpoint_bytes = 4 * GIB;
    b = plan(ck, 512 * GIB, 0, NULL);
    assert_true(b.kv_pages[MODEL_SLIDING] >=
                4 * 11 + (int)(4 * GIB / b.kv_page_bytes[MODEL_SLIDING]));
    assert_true(b.kv_pages[MODEL_FULL] >= 1024);
    assert_true(b.kv_pages[MODEL_SLIDING] != a.kv_pages[MODEL_SLIDING]);
    checkpoint_close(ck);
}

/* Never more than memory_utilization of what is free, whatever is asked, and
 * always at least one whole context. */
static void test_plans_of_all_sizes_hold_their_promises(void **state)
{
    struct shape s = real_shape();
    struct checkpoint *ck = bare(&s);

    (void)state;
    ck->conf.weights = MODEL_COPY;
    for (uint64_t gib = 230; gib < 600; gib += 11) {
        for (int seqs = 1; seqs <= 64; seqs *= 4) {
            struct report rep;
            struct model_memory m;
            int sessions, r;

            ck->conf.max_seqs = seqs;
            report_init(&rep);
            r = plan_memory(ck, NULL, gib * GIB, &rep, &m);
            report_finish(&rep, NULL);
            if (r < 0) {
                continue;
            }
            assert_true(total(&m) <= gib * GIB / 2);
            assert_true(m.max_model_len >= 64);
            assert_true(m.max_model_len <= m.kv_pages[MODEL_FULL] * 64);
            sessions = (m.kv_pages[MODEL_SLIDING] - 4) / 11;
            assert_true(sessions >= 1);
        }
    }
    checkpoint_close(ck);
}

static void test_model_check_plans(void **state)
{
    struct model_conf c = {.path = test_data("step-tiny"),
                           .drafts = -1,
                           .max_seqs = 4,
                           .max_rows = 128};
    struct model_report rep = {0};
    struct model_info info;

    (void)state;
    assert_int_equal(model_check(&c, &rep, &info), 0);
    assert_int_equal(info.max_model_len, 4096);
    assert_int_equal(info.memory.kv_pages[MODEL_FULL], 4 * 64);
    assert_int_equal(info.memory.kv_page_bytes[MODEL_FULL], 2 * 1024 * 64);
    assert_int_equal(info.memory.kv_page_bytes[MODEL_SLIDING], 7 * 1024 * 64);
    assert_true(info.memory.available > 0);
    model_report_finish(&rep);
    memset(&info, 0x5a, sizeof(info));
    c.path = "/nonexistent";
    assert_int_equal(model_check(&c, &rep, &info), -ENOENT);
    assert_int_equal(info.vocab, 0x5a5a5a5a); /* untouched on failure */
    model_report_finish(&rep);
}

/* The plan and the allocation cannot disagree. */
static void test_planned_buffers_are_those_that_are_made(void **state)
{
    struct model_conf c = {.path = test_data("step-tiny"),
                           .backend = "ref",
                           .drafts = -1,
                           .max_seqs = 4,
                           .max_rows = 128};
    struct model *m;

    (void)state;
    assert_int_equal(model_open_on(&m, &c, &kern_ref_ops, NULL), 0);
    assert_int_equal(model_info(m)->memory.activations,
                     m->f.bufs.bytes + m->draw.bufs.bytes + m->mtp.bufs.bytes +
                         m->step.bufs.bytes);
    assert_int_equal(model_info(m)->memory.kv_page_bytes[MODEL_FULL],
                     m->kv.page_bytes[MODEL_FULL]);
    assert_int_equal(model_info(m)->memory.kv_page_bytes[MODEL_SLIDING],
                     m->kv.page_bytes[MODEL_SLIDING]);
    model_close(m);
}

/* ---- free memory --------------------------------------------------------- */

static char root[] = "/tmp/stepd-test-plan-XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512], *slash;
    FILE *f;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_free_memory_is_what_the_machine_has(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal:       100000 kB\nMemFree: 10 kB\n"
                        "MemAvailable:    50000 kB\n");
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(available_memory(root), 50000 * 1024);
}

static void test_free_memory_is_what_the_groups_leave(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/memory.max", "40000000\n");
    put("sys/fs/cgroup/a/memory.current", "30000000\n");
    put("sys/fs/cgroup/a/memory.stat",
        "anon 1\nfile 99\ninactive_file 20000000\nactive_file 5000000\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    /* 30,000,000 in use, of them 25,000,000 page cache. */
    assert_int_equal(available_memory(root), 35000000);
    put("sys/fs/cgroup/a/b/memory.max", "1000000\n");
    put("sys/fs/cgroup/a/b/memory.current", "400000\n");
    assert_int_equal(available_memory(root), 600000);
    put("sys/fs/cgroup/a/b/memory.current", "4000000\n");
    assert_int_equal(available_memory(root), 0);
}

static void test_free_memory_under_version_1_groups(void **state)
{
    (void)state;
    put("proc/self/cgroup", "12:cpuset:/x\n7:memory:/m\n0::/gone\n");
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "30000000\n");
    put("sys/fs/cgroup/memory/m/memory.usage_in_bytes", "25000000\n");
    put("sys/fs/cgroup/memory/m/memory.stat",
        "inactive_file 1\ntotal_inactive_file 5000000\n");
    assert_int_equal(available_memory(root), 10000000);
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes",
        "9223372036854771712\n");
    assert_int_equal(available_memory(root), 50000 * 1024);
}

static void test_free_memory_of_this_machine(void **state)
{
    (void)state;
    assert_true(available_memory("") > 0);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes_of_the_real_model),
        cmocka_unit_test(test_planned_weights_are_those_of_the_files),
        cmocka_unit_test(test_a_checkpoint_of_the_real_size),
        cmocka_unit_test(test_sliding_pages_of_a_session),
        cmocka_unit_test(test_plan_of_the_real_model_with_room),
        cmocka_unit_test(test_plan_on_a_device),
        cmocka_unit_test(test_the_context_shrinks_to_what_fits),
        cmocka_unit_test(fr_91_an_asked_context_that_does_not_fit_is_refused),
        cmocka_unit_test(test_weights_that_do_not_fit),
        cmocka_unit_test(test_an_asked_cache),
        cmocka_unit_test(test_an_asked_memory_for_checkpoints),
        cmocka_unit_test(test_plans_of_all_sizes_hold_their_promises),
        cmocka_unit_test(test_model_check_plans),
        cmocka_unit_test(test_planned_buffers_are_those_that_are_made),
        cmocka_unit_test(test_free_memory_is_what_the_machine_has),
        cmocka_unit_test(test_free_memory_is_what_the_groups_leave),
        cmocka_unit_test(test_free_memory_under_version_1_groups),
        cmocka_unit_test(test_free_memory_of_this_machine),
    };

    return test_main(tests, make_root, remove_root);
}
