/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opening checkpoints: what is accepted in every dialect, and the exact text of
 * every kind of refusal.
 */
#include "daemon/model/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "daemon/model/config.h"
#include "tests/ckpt.h"
#include "tests/test.h"

static struct synth micro(enum synth_dialect d)
{
    struct synth s;

    assert_true(synth_preset(&s, "micro"));
    s.dialect = d;
    return s;
}

static char *make(enum synth_dialect d)
{
    struct synth s = micro(d);

    return ckpt_synth(&s);
}

/* What opening a folder says. */
struct opened {
    int r;
    struct model_report rep;
    struct model_info info;
    struct shape shape;
};

static struct opened open_conf(const struct model_conf *c)
{
    struct opened o = {0};
    struct checkpoint *ck;

    o.r = checkpoint_open(c, &o.rep, &ck);
    if (o.r == 0) {
        checkpoint_info(ck, &o.info);
        o.shape = *checkpoint_shape(ck);
        checkpoint_close(ck);
    }
    return o;
}

static struct opened open_dir(const char *dir)
{
    struct model_conf c = {.path = dir, .drafts = -1};

    return open_conf(&c);
}

static void show(const struct opened *o)
{
    for (int i = 0; i < o->rep.n_problems; i++) {
        print_error("problem: %s\n", o->rep.problem[i]);
    }
    for (int i = 0; i < o->rep.n_notes; i++) {
        print_error("note: %s\n", o->rep.note[i]);
    }
}

/* Exactly these problems, in this order. Throws the folder away. */
#define assert_problems(dir, ...)                                 \
    assert_problems_(dir, (const char *const[]){__VA_ARGS__},     \
                     sizeof((const char *const[]){__VA_ARGS__}) / \
                         sizeof(const char *),                    \
                     __FILE__, __LINE__)

static void assert_problems_(char *dir, const char *const *text, size_t n,
                             const char *file, int line)
{
    struct opened o = open_dir(dir);
    bool same = o.rep.n_problems == (int)n;

    for (size_t i = 0; same && i < n; i++) {
        same = strcmp(o.rep.problem[i], text[i]) == 0;
    }
    if (!same || o.r != -EBADMSG) {
        show(&o);
        for (size_t i = 0; i < n; i++) {
            print_error("expected: %s\n", text[i]);
        }
        _fail(file, line);
    }
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* No problem, and exactly these notes. */
#define assert_notes(dir, ...)                                             \
    assert_notes_(dir, (const char *const[]){__VA_ARGS__, NULL}, __FILE__, \
                  __LINE__)

static void assert_notes_(char *dir, const char *const *text, const char *file,
                          int line)
{
    struct opened o = open_dir(dir);
    int n = 0;

    while (text[n] != NULL) {
        n++;
    }
    if (o.r != 0 || o.rep.n_notes != n) {
        show(&o);
        _fail(file, line);
    }
    for (int i = 0; i < n; i++) {
        assert_string_equal(o.rep.note[i], text[i]);
    }
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* ---- what is accepted ---------------------------------------------------- */

static void test_micro_checkpoints_of_all_dialects(void **state)
{
    static const struct {
        const char *name, *family, *dialect;
    } all[] = {
        {"micro/micro-bf16", "step3p7", "BF16"},
        {"micro/micro-mxfp4", "step3p7", "compressed-tensors MXFP4"},
        {"micro/micro-fp8", "step3p7", "FP8 128x128"},
        {"micro/micro-nvfp4", "step3p7", "ModelOpt NVFP4"},
        {"micro/micro-quark", "step3p5", "Quark MXFP4"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct opened o = open_dir(test_data_built(all[i].name));

        if (o.r != 0) {
            show(&o);
        }
        assert_int_equal(o.r, 0);
        assert_string_equal(o.info.family, all[i].family);
        assert_string_equal(o.info.dialect, all[i].dialect);
        assert_int_equal(o.info.n_mtp, 3);
        assert_int_equal(o.info.vocab, 512);
        assert_int_equal(o.info.max_model_len, 4096);
        assert_string_equal(o.rep.note[0],
                            "golden.safetensors: not in the index, not read");
        model_report_finish(&o.rep);
    }
}

static void test_step_tiny(void **state)
{
    struct opened o = open_dir(test_data("step-tiny"));

    (void)state;
    assert_int_equal(o.r, 0);
    assert_string_equal(o.info.dialect, "compressed-tensors MXFP4");
    assert_int_equal(o.info.n_mtp, 3);
    assert_int_equal(o.info.n_eos, 3);
    model_report_finish(&o.rep);
}

static void assert_clean(char *dir, const char *dialect)
{
    struct opened o = open_dir(dir);

    if (o.r != 0 || o.rep.n_notes != 0) {
        show(&o);
    }
    assert_int_equal(o.r, 0);
    assert_int_equal(o.rep.n_notes, 0);
    assert_string_equal(o.info.dialect, dialect);
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static void test_compressed_tensors_nvfp4(void **state)
{
    (void)state;
    assert_clean(make(SYNTH_NVFP4_CT), "compressed-tensors NVFP4");
}

/* fr_24, fr_26: one 3-D tensor or one 2-D tensor an expert. */
static void fr_24_26_fused_and_listed_experts(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);
    char *dir;
    struct opened o;

    (void)state;
    assert_clean(ckpt_synth(&s), "compressed-tensors MXFP4");
    s.fused = true;
    dir = ckpt_synth(&s);
    o = open_dir(dir);
    assert_int_equal(o.r, 0);
    assert_string_equal(o.info.dialect, "compressed-tensors MXFP4");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* The single-format configuration: targets ["Linear"], all of it packed. */
static void test_packed_attention_and_dense_layers(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);

    (void)state;
    s.pack_all = true;
    s.no_mtp = true;
    s.n_mtp = 0;
    assert_clean(ckpt_synth(&s), "compressed-tensors MXFP4");
}

/* fr_21: BF16 draft layers in a checkpoint whose configuration packs every
 * Linear; the tensors count. */
static void fr_21_drafter_is_not_quantised_with_the_rest(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);
    char *dir;
    struct opened o;

    (void)state;
    s.pack_all = true;
    dir = ckpt_synth(&s);
    o = open_dir(dir);
    assert_int_equal(o.r, 0);
    assert_int_equal(o.info.n_mtp, 3);
    assert_int_equal(o.rep.n_notes, 1);
    assert_string_equal(
        o.rep.note[0],
        "24 weights are not packed although quantization_config names them "
        "(the first is model.layers.3.self_attn.q_proj): the tensors count");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static void test_names_of_mtp_layers(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);

    (void)state;
    s.mtp_names = SYNTH_MTP_BLOCK;
    assert_clean(ckpt_synth(&s), "compressed-tensors MXFP4");
    s.mtp_names = SYNTH_MTP_SHORT;
    assert_clean(ckpt_synth(&s), "compressed-tensors MXFP4");
}

static void test_lists_of_45_entries_load(void **state)
{
    struct synth s = micro(SYNTH_BF16);

    (void)state;
    s.short_lists = true;
    assert_clean(ckpt_synth(&s), "BF16");
}

static void test_without_an_index_all_shards_are_read(void **state)
{
    struct synth s = micro(SYNTH_FP8);

    (void)state;
    s.no_index = true;
    assert_clean(ckpt_synth(&s), "FP8 128x128");
}

static void test_scales_missing_from_the_index(void **state)
{
    (void)state;
    assert_notes(make(SYNTH_FP8),
                 "6 tensors are in the shards and not in the index (the first "
                 "is model.layers.1.moe.down_proj.weight_scale_inv): the "
                 "headers count");
}

/* The upstream failure: scales of a quantised KV cache are neither required nor
 * used, in the trunk and in MTP layers, whatever their number of elements. */
static void test_inert_parameters_are_not_used(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);

    (void)state;
    s.inert = SYNTH_SCALAR_INERT;
    assert_notes(ckpt_synth(&s),
                 "12 quantisation parameters of attention and activations (the "
                 "first is model.layers.0.self_attn.k_proj.k_scale) are not "
                 "used: the KV cache and the activations stay BF16");
    s.inert = SYNTH_VECTOR_INERT;
    assert_notes(ckpt_synth(&s),
                 "72 quantisation parameters of attention and activations (the "
                 "first is model.layers.0.self_attn.attn.k_scale) are not "
                 "used: the KV cache and the activations stay BF16");
}

static void test_quantised_kv_scheme_is_said_and_ignored(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_config(dir, "quantization_config.kv_cache_scheme",
                "{\"num_bits\": 8, \"type\": \"float\"}");
    assert_notes(dir, "quantization_config asks for a quantised KV cache "
                      "(kv_cache_scheme): the KV cache stays BF16");
}

static void test_vision_tensors_are_counted(void **state)
{
    struct synth s = micro(SYNTH_BF16);

    (void)state;
    s.vision = true;
    assert_notes(ckpt_synth(&s), "3 vision tensors are not used: text only");
}

static void test_weight_shape_is_of_no_use(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_add(dir, "model-00001.safetensors",
             "model.layers.1.moe.experts.0.up_proj.weight_shape", "I64", "[2]",
             16, 0);
    ckpt_index(dir, "model.layers.1.moe.experts.0.up_proj.weight_shape",
               "model-00001.safetensors");
    assert_clean(dir, "compressed-tensors MXFP4");
}

static void test_links_to_shards(void **state)
{
    char *dir = make(SYNTH_BF16), *cache = make(SYNTH_BF16);
    const char *shard = "model-00001.safetensors";

    (void)state;
    assert_int_equal(unlink(ckpt_path(dir, shard)), 0);
    assert_int_equal(symlink(ckpt_path(cache, shard), ckpt_path(dir, shard)),
                     0);
    assert_clean(dir, "BF16");
    ckpt_remove(cache);
}

/* ---- MTP layers that are not there --------------------------------------- */

/* fr_20 */
static void fr_20_promised_mtp_layers_are_absent(void **state)
{
    struct synth s = micro(SYNTH_NVFP4);
    struct model_conf c = {.drafts = -1};
    struct opened o;
    char *dir;

    (void)state;
    s.no_mtp = true;
    s.short_lists = true;
    dir = ckpt_synth(&s);
    c.path = dir;
    o = open_conf(&c);
    assert_int_equal(o.r, 0);
    assert_int_equal(o.info.n_mtp, 0);
    assert_int_equal(o.shape.n_mtp, 0);
    assert_string_equal(o.rep.note[0],
                        "config.json names 3 MTP layers, but "
                        "layer 3 has no tensor: drafting is off");
    model_report_finish(&o.rep);
    c.drafts_required = true;
    o = open_conf(&c);
    assert_int_equal(o.r, -EBADMSG);
    assert_int_equal(o.rep.n_problems, 1);
    assert_string_equal(o.rep.problem[0],
                        "config.json names 3 MTP layers, but layer 3 has no "
                        "tensor: drafting is required by the configuration");
    model_report_finish(&o.rep);
    ckpt_config(dir, "text_config.num_nextn_predict_layers", "0");
    o = open_conf(&c);
    assert_int_equal(o.rep.n_problems, 1);
    assert_string_equal(o.rep.problem[0],
                        "config.json: num_nextn_predict_layers: expected 1 to "
                        "3 (drafting is required by the configuration), found "
                        "0");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* Takes every tensor of a layer away. */
static void drop_layer(const char *dir, int layer)
{
    struct checkpoint *ck;
    struct model_conf c = {.path = dir, .drafts = -1};
    char(*name)[256] = calloc(64, sizeof(*name));
    int n = 0;
    char prefix[64];

    assert_non_null(name);
    snprintf(prefix, sizeof(prefix), "model.layers.%d.", layer);
    assert_int_equal(checkpoint_open(&c, NULL, &ck), 0);
    for (int i = 0; i < ck->n_files; i++) {
        for (int j = 0; j < ck->file[i].n_tensors; j++) {
            const char *t = ck->file[i].tensor[j].name;

            if (strncmp(t, prefix, strlen(prefix)) == 0) {
                assert_in_range(n, 0, 63);
                snprintf(name[n++], sizeof(*name), "%s", t);
            }
        }
    }
    checkpoint_close(ck);
    assert_int_equal(n, 17);
    for (int i = 0; i < n; i++) {
        ckpt_drop(dir, name[i]);
        ckpt_index(dir, name[i], NULL);
    }
    free(name);
}

static void test_fewer_mtp_layers_are_fewer_drafts(void **state)
{
    char *dir = make(SYNTH_BF16);
    struct opened o;

    (void)state;
    drop_layer(dir, 4);
    o = open_dir(dir);
    assert_int_equal(o.r, 0);
    assert_int_equal(o.info.n_mtp, 1);
    assert_string_equal(o.rep.note[0],
                        "config.json names 3 MTP layers, but layer 4 has no "
                        "tensor: at most 1 drafts");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static void test_half_an_mtp_layer_is_a_problem(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_drop(dir, "model.layers.4.eh_proj.weight");
    ckpt_index(dir, "model.layers.4.eh_proj.weight", NULL);
    assert_problems(dir, "no shard: model.layers.4.eh_proj.weight: missing: "
                         "expected BF16 [96, 192]");
}

static void test_drafts_0_loads_no_mtp_layer(void **state)
{
    char *dir = make(SYNTH_BF16);
    struct model_conf c = {.path = dir, .drafts = 0};
    struct opened o = open_conf(&c);

    (void)state;
    assert_int_equal(o.r, 0);
    assert_int_equal(o.info.n_mtp, 0);
    assert_string_equal(o.rep.note[0],
                        "the MTP layers are not loaded: drafts = 0");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* ---- tensors that do not fit --------------------------------------------- */

static void test_missing_tensors(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_drop(dir, "model.norm.weight");
    ckpt_drop(dir, "model.layers.1.moe.router_bias");
    ckpt_drop(dir, "model.layers.2.moe.down_proj.weight");
    assert_problems(
        dir,
        "model-00001.safetensors: model.layers.1.moe.router_bias: missing: "
        "expected F32 [8]",
        "model-00002.safetensors: model.layers.2.moe.down_proj.weight: "
        "missing: expected BF16 [8, 96, 160]",
        "model-00002.safetensors: model.norm.weight: missing: expected BF16 "
        "[96]");
}

static void test_missing_experts(void **state)
{
    char *dir = make(SYNTH_MXFP4);
    char name[128];

    (void)state;
    for (int e = 0; e < 8; e++) {
        snprintf(name, sizeof(name),
                 "model.layers.1.moe.experts.%d.up_proj.weight_packed", e);
        ckpt_drop(dir, name);
        ckpt_index(dir, name, NULL);
        snprintf(name, sizeof(name),
                 "model.layers.1.moe.experts.%d.up_proj.weight_scale", e);
        ckpt_drop(dir, name);
        ckpt_index(dir, name, NULL);
    }
    ckpt_drop(dir, "model.layers.2.moe.experts.7.down_proj.weight_scale");
    ckpt_drop(dir, "model.layers.2.moe.experts.5.down_proj.weight_packed");
    assert_problems(
        dir,
        "no shard: model.layers.1.moe.experts.0.up_proj.weight_packed: "
        "missing: expected U8 [160, 48], and so are all 8 experts",
        "model-00001.safetensors: "
        "model.layers.2.moe.experts.5.down_proj.weight_packed: missing: "
        "expected U8 [96, 80]",
        "model-00001.safetensors: "
        "model.layers.2.moe.experts.7.down_proj.weight_scale: missing: "
        "expected U8 [96, 5]");
}

static void test_missing_scales_of_each_dialect(void **state)
{
    static const struct {
        enum synth_dialect d;
        const char *drop, *text;
    } cases[] = {
        {SYNTH_FP8, "model.layers.1.moe.up_proj.weight_scale_inv",
         "no shard: model.layers.1.moe.up_proj.weight_scale_inv: missing: "
         "expected F32 [8, 2, 1]"},
        {SYNTH_NVFP4, "model.language_model.layers.1.moe.up_proj.weight_scale",
         "model-00001.safetensors: "
         "model.language_model.layers.1.moe.up_proj.weight_scale: missing: "
         "expected F8_E4M3 [8, 160, 6]"},
        {SYNTH_NVFP4,
         "model.language_model.layers.1.moe.up_proj.weight_scale_2",
         "model-00001.safetensors: "
         "model.language_model.layers.1.moe.up_proj.weight_scale_2: missing: "
         "expected F32 [8]"},
        {SYNTH_NVFP4_CT,
         "model.layers.1.moe.experts.3.up_proj.weight_global_scale",
         "model-00001.safetensors: "
         "model.layers.1.moe.experts.3.up_proj.weight_global_scale: missing: "
         "expected F32 []"},
        {SYNTH_QUARK, "model.layers.1.moe.3.up_proj.weight_scale",
         "model-00001.safetensors: model.layers.1.moe.3.up_proj.weight_scale: "
         "missing: expected U8 [160, 3]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *dir = make(cases[i].d);

        ckpt_drop(dir, cases[i].drop);
        assert_problems(dir, cases[i].text);
    }
}

static void test_wrong_shapes(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_reshape(dir, "model.layers.0.self_attn.q_proj.weight", "[96, 512]");
    ckpt_reshape(dir, "model.layers.1.moe.up_proj.weight", "[8, 96, 160]");
    ckpt_reshape(dir, "model.layers.1.moe.router_bias", "[1, 8]");
    assert_problems(
        dir,
        "model-00001.safetensors: model.layers.0.self_attn.q_proj.weight: "
        "wrong shape: expected [512, 96], found [96, 512]",
        "model-00001.safetensors: model.layers.1.moe.router_bias: wrong "
        "shape: expected [8], found [1, 8]",
        "model-00001.safetensors: model.layers.1.moe.up_proj.weight: wrong "
        "shape: expected [8, 160, 96], found [8, 96, 160]");
}

static void test_wrong_dtypes(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_retype(dir, "model.embed_tokens.weight", "F16");
    ckpt_retype(dir, "model.layers.0.mlp.up_proj.weight", "I16");
    ckpt_retype(dir, "model.layers.1.moe.gate.weight", "F16");
    ckpt_retype(dir, "model.layers.1.moe.router_bias", "I32");
    assert_problems(
        dir,
        "model-00001.safetensors: model.embed_tokens.weight: wrong dtype: "
        "expected BF16, found F16",
        "model-00001.safetensors: model.layers.0.mlp.up_proj.weight: wrong "
        "dtype: expected BF16, F8_E4M3 with scales or U8 with scales, found "
        "I16",
        "model-00001.safetensors: model.layers.1.moe.gate.weight: wrong "
        "dtype: expected BF16, found F16",
        "model-00001.safetensors: model.layers.1.moe.router_bias: wrong "
        "dtype: expected F32, found I32");
}

static void test_wrong_scales(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_retype(dir, "model.layers.1.moe.experts.2.up_proj.weight_scale", "I8");
    assert_problems(dir, "model-00001.safetensors: "
                         "model.layers.1.moe.experts.2.up_proj.weight_scale: "
                         "wrong dtype: expected U8, found I8");
    dir = make(SYNTH_MXFP4);
    ckpt_retype(dir, "model.layers.1.moe.experts.2.up_proj.weight_packed",
                "I8");
    assert_problems(dir, "model-00001.safetensors: "
                         "model.layers.1.moe.experts.2.up_proj.weight_packed: "
                         "wrong dtype: expected U8, found I8");
}

/* E8M0 scales may say so. */
static void test_scales_typed_e8m0(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_retype(dir, "model.layers.1.moe.experts.2.up_proj.weight_scale",
                "F8_E8M0");
    assert_clean(dir, "compressed-tensors MXFP4");
}

/* fr_29: what no kernel can take is refused at load, not at the first token. */
static void fr_29_blocks_that_do_not_divide_the_columns(void **state)
{
    struct synth s = micro(SYNTH_MXFP4);
    struct opened o;
    char *dir;

    (void)state;
    s.expert_width = 144; /* 4.5 blocks of 32 */
    dir = ckpt_synth(&s);
    o = open_dir(dir);
    assert_int_equal(o.r, -EBADMSG);
    assert_string_equal(
        o.rep.problem[0],
        "model-00001.safetensors: "
        "model.layers.1.moe.experts.0.down_proj.weight_packed: "
        "compressed-tensors MXFP4 needs columns in blocks of 32, found 144");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static void test_an_expert_in_another_form(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_drop(dir, "model.layers.1.moe.experts.3.up_proj.weight_packed");
    ckpt_drop(dir, "model.layers.1.moe.experts.3.up_proj.weight_scale");
    ckpt_index(dir, "model.layers.1.moe.experts.3.up_proj.weight_packed", NULL);
    ckpt_index(dir, "model.layers.1.moe.experts.3.up_proj.weight_scale", NULL);
    ckpt_add(dir, "model-00001.safetensors",
             "model.layers.1.moe.experts.3.up_proj.weight", "BF16", "[160, 96]",
             160 * 96 * 2, 0);
    assert_problems(dir, "model-00001.safetensors: "
                         "model.layers.1.moe.experts.3.up_proj.weight: "
                         "expected compressed-tensors MXFP4 like the experts "
                         "before it, found BF16");
}

static void add_word(const char *dir, const char *name)
{
    ckpt_add(dir, "model-00001.safetensors", name, "BF16", "[2]", 4, 0);
    ckpt_index(dir, name, "model-00001.safetensors");
}

static void test_unknown_tensors(void **state)
{
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.bias", ""},
        {"model.layers.0.mtp_block.self_attn.q_proj.weight",
         ", its layer is no MTP layer"},
        {"model.layers.6.self_attn.q_proj.weight",
         ", config.json has fewer layers"},
        {"model.layers.0.moe.gate.weight",
         ", config.json makes its layer a dense one"},
        {"model.layers.1.mlp.up_proj.weight",
         ", config.json makes its layer a MoE layer"},
        {"model.layers.1.moe.experts.8.up_proj.weight_packed",
         ", config.json has fewer experts"},
        {"model.layers.1.moe.experts.01.up_proj.weight_packed", ""},
        {"model.layers.1.moe.gate_up_proj.weight", ""},
        {"model.layers.1.moe.experts.0.up_proj.weight_zero_point",
         ", only symmetric quantisation is supported"},
        {"mtp.fc.weight", ""},
        {"model.layers.3.embed_tokens.weight", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *dir = make(SYNTH_MXFP4);
        char text[256];

        add_word(dir, cases[i].name);
        snprintf(text, sizeof(text),
                 "model-00001.safetensors: %s: unknown tensor%s: expected "
                 "nothing, found BF16 [2]",
                 cases[i].name, cases[i].why);
        assert_problems(dir, text);
    }
}

/* A part that belongs to another form than the one its tensor is in. */
static void test_a_part_too_many(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    add_word(dir, "model.layers.0.self_attn.q_proj.weight_scale");
    assert_problems(dir, "model-00001.safetensors: "
                         "model.layers.0.self_attn.q_proj.weight_scale: "
                         "unknown tensor, BF16 has no such part: expected "
                         "nothing, found BF16 [2]");
}

static void test_given_twice(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_add(dir, "model-00002.safetensors", "model.embed_tokens.weight",
             "BF16", "[512, 96]", 512 * 96 * 2, 0);
    assert_problems(dir, "model-00002.safetensors: model.embed_tokens.weight: "
                         "given twice: model.embed_tokens.weight of "
                         "model-00001.safetensors is the same tensor");
    dir = make(SYNTH_BF16);
    ckpt_add(dir, "model-00001.safetensors",
             "model.language_model.embed_tokens.weight", "BF16", "[512, 96]",
             512 * 96 * 2, 0);
    assert_problems(dir,
                    "model-00001.safetensors: "
                    "model.language_model.embed_tokens.weight: given twice: "
                    "model.embed_tokens.weight of model-00001.safetensors is "
                    "the same tensor");
    dir = make(SYNTH_MXFP4);
    ckpt_add(dir, "model-00001.safetensors",
             "model.layers.1.moe.up_proj.weight", "BF16", "[8, 160, 96]",
             8 * 160 * 96 * 2, 0);
    assert_problems(dir, "model.layers.1.moe.up_proj: given both as one tensor "
                         "and expert by expert");
}

/* fr_23: a limit may not be left out. */
static void fr_23_missing_limits_are_a_load_error(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_config(dir, "text_config.swiglu_limits", NULL);
    assert_problems(dir, "config.json: text_config.swiglu_limits: expected a "
                         "list of 3 or 6 entries, found nothing");
}

/* ---- index and folder ---------------------------------------------------- */

/* fr_35 */
static void fr_35_index_against_headers(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_index(dir, "model.embed_tokens.weight", "model-00002.safetensors");
    ckpt_index(dir, "mtp.fc.weight", "model-00001.safetensors");
    ckpt_index(dir, "model.layers.4.mlp.extra.weight",
               "model-00001.safetensors");
    ckpt_drop(dir, "model.layers.3.enorm.weight");
    assert_problems(
        dir,
        "model.safetensors.index.json: model.embed_tokens.weight: expected in "
        "model-00002.safetensors, found in model-00001.safetensors",
        "model.safetensors.index.json: model.layers.3.enorm.weight: expected "
        "in model-00002.safetensors, found in no shard",
        "model.safetensors.index.json: mtp.fc.weight: expected in "
        "model-00001.safetensors, found in no shard",
        "model.safetensors.index.json: model.layers.4.mlp.extra.weight: "
        "expected in model-00001.safetensors, found in no shard",
        "model-00002.safetensors: model.layers.3.enorm.weight: missing: "
        "expected BF16 [96]");
}

/* fr_35: a listed shard is absent; what it held is not listed again. */
static void fr_35_listed_shard_is_absent(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    assert_int_equal(unlink(ckpt_path(dir, "model-00002.safetensors")), 0);
    assert_problems(dir, "model-00002.safetensors: cannot be opened: No such "
                         "file or directory");
}

static void fr_35_unlisted_shard_is_left_alone(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_add(dir, "model-extra.safetensors", "mtp.fc.weight", "U8", "[1]", 1,
             0);
    assert_notes(dir, "model-extra.safetensors: not in the index, not read");
}

static void test_index_cannot_leave_the_folder(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_index(dir, "model.norm.weight", "../model-00002.safetensors");
    assert_problems(dir, "model.safetensors.index.json: model.norm.weight: "
                         "expected the name of a shard, found "
                         "\"../model-00002.safetensors\"");
}

static void put_text(const char *dir, const char *name, const char *text)
{
    FILE *f = fopen(ckpt_path(dir, name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_broken_index(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    put_text(dir, "model.safetensors.index.json", "{\n\"weight_map\": 1}");
    assert_problems(dir, "model.safetensors.index.json: weight_map: expected "
                         "an object, found nothing");
    dir = make(SYNTH_BF16);
    put_text(dir, "model.safetensors.index.json", "{\n");
    assert_problems(dir, "model.safetensors.index.json: line 2 column 0: "
                         "string or '}' expected near end of file");
}

static void test_lfs_pointers_and_empty_files(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    put_text(dir, "model-00001.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    put_text(dir, "model-00002.safetensors", "");
    assert_problems(dir,
                    "model-00001.safetensors: a Git LFS pointer, not the file "
                    "itself: run git lfs pull",
                    "model-00002.safetensors: empty file");
}

/* fr_32: what is cut off is said once, by file. */
static void fr_32_truncated_shard(void **state)
{
    char *dir = make(SYNTH_BF16);
    struct stat st;
    char text[256];
    const char *path = ckpt_path(dir, "model-00002.safetensors");

    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 4096), 0);
    snprintf(text, sizeof(text),
             "model-00002.safetensors: truncated: 4096 bytes are missing: "
             "expected %lld, found %lld; 1 tensors are cut, the first is "
             "lm_head.weight",
             (long long)st.st_size, (long long)st.st_size - 4096);
    assert_problems(dir, text);
}

static void test_folders_that_hold_no_model(void **state)
{
    char *dir = make(SYNTH_BF16);
    struct model_conf c = {.path = "/nonexistent/model", .drafts = -1};
    struct opened o = open_conf(&c);
    char text[512];

    (void)state;
    assert_int_equal(o.r, -ENOENT);
    assert_string_equal(o.rep.problem[0],
                        "/nonexistent/model: No such file or directory");
    model_report_finish(&o.rep);

    unlink(ckpt_path(dir, "model.safetensors.index.json"));
    unlink(ckpt_path(dir, "model-00001.safetensors"));
    unlink(ckpt_path(dir, "model-00002.safetensors"));
    o = open_dir(dir);
    snprintf(text, sizeof(text), "%s: expected *.safetensors, found none", dir);
    assert_string_equal(o.rep.problem[0], text);
    model_report_finish(&o.rep);
    put_text(dir, "step.gguf", "GGUF");
    snprintf(text, sizeof(text), "%s: expected *.safetensors, found GGUF files",
             dir);
    o = open_dir(dir);
    assert_string_equal(o.rep.problem[0], text);
    model_report_finish(&o.rep);
    unlink(ckpt_path(dir, "config.json"));
    snprintf(text, sizeof(text), "%s/config.json: No such file or directory",
             dir);
    o = open_dir(dir);
    assert_int_equal(o.r, -ENOENT);
    assert_string_equal(o.rep.problem[0], text);
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

static void test_draft_checkpoints_are_named_as_such(void **state)
{
    struct synth s = micro(SYNTH_BF16);
    char text[512];
    char *dir;

    (void)state;
    s.only_mtp = true;
    dir = ckpt_synth(&s);
    snprintf(text, sizeof(text),
             "%s: holds MTP layers only: a draft checkpoint, not a model", dir);
    assert_problems(dir, text);
}

static void test_fifty_problems_then_a_count(void **state)
{
    char *dir = make(SYNTH_BF16);
    struct opened o;

    (void)state;
    ckpt_config(dir, "text_config.hidden_size", "128");
    ckpt_drop(dir, "model.layers.2.moe.gate.weight");
    o = open_dir(dir);
    assert_int_equal(o.r, -EBADMSG);
    assert_int_equal(o.rep.n_problems, 51);
    /* What is missing comes before what does not fit. */
    assert_string_equal(o.rep.problem[0],
                        "model-00001.safetensors: "
                        "model.layers.2.moe.gate.weight: missing: expected "
                        "BF16 [8, 128]");
    assert_string_equal(o.rep.problem[1],
                        "model-00001.safetensors: model.embed_tokens.weight: "
                        "wrong shape: expected [512, 128], found [512, 96]");
    assert_string_equal(o.rep.problem[50], "and 36 more problems");
    model_report_finish(&o.rep);
    ckpt_remove(dir);
}

/* ---- quantization_config ------------------------------------------------- */

static void test_config_and_tensors_disagree(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_config(dir, "quantization_config", NULL);
    assert_notes(dir, "6 weights are packed although config.json has no "
                      "quantization_config: the tensors count");
    dir = make(SYNTH_MXFP4);
    ckpt_config(dir, "quantization_config.ignore",
                "[\"re:.*layers\\\\.1\\\\..*\"]");
    assert_notes(dir, "3 weights are packed although quantization_config "
                      "leaves them out (the first is "
                      "model.layers.1.moe.experts.0.gate_proj): the tensors "
                      "count");
    dir = make(SYNTH_MXFP4);
    ckpt_config(dir,
                "quantization_config.config_groups.group_0.weights."
                "group_size",
                "64");
    assert_notes(dir, "quantization_config has group_size 64, the tensors have "
                      "blocks of 32: the tensors count");
}

static void test_patterns_as_python_reads_them(void **state)
{
    char *dir = make(SYNTH_MXFP4);

    (void)state;
    ckpt_config(dir, "quantization_config.ignore", "[\"re:^(?!.*experts).*\"]");
    ckpt_config(dir, "quantization_config.config_groups.group_0.targets",
                "[\"Linear\"]");
    assert_clean(dir, "compressed-tensors MXFP4");
    dir = make(SYNTH_MXFP4);
    ckpt_config(dir, "quantization_config.ignore", "[\"re:(\"]");
    assert_notes(dir, "config.json: quantization_config: re:(: not a pattern, "
                      "skipped");
}

static void test_unknown_methods_are_refused(void **state)
{
    char *dir = make(SYNTH_BF16);

    (void)state;
    ckpt_config(dir, "quantization_config", "{\"quant_method\": \"awq\"}");
    assert_problems(dir, "config.json: quantization_config.quant_method: "
                         "expected compressed-tensors, fp8, modelopt or quark, "
                         "found awq");
}

/* ---- identity ------------------------------------------------------------ */

static uint64_t fingerprint(const char *dir)
{
    struct opened o = open_dir(dir);

    assert_int_equal(o.r, 0);
    model_report_finish(&o.rep);
    return o.info.fingerprint;
}

static void test_fingerprint(void **state)
{
    char *dir = make(SYNTH_MXFP4), *copy = ckpt_copy(dir);
    uint64_t f = fingerprint(dir);

    (void)state;
    assert_true(fingerprint(copy) == f);
    ckpt_config(copy, "text_config.max_position_embeddings", "2048");
    assert_true(fingerprint(copy) != f);
    ckpt_remove(copy);
    copy = ckpt_copy(dir);
    ckpt_poke(copy, "model.embed_tokens.weight", 0, 0x77); /* a fine-tune */
    assert_true(fingerprint(copy) != f);
    ckpt_remove(copy);
    copy = ckpt_copy(dir);
    ckpt_retype(copy, "model.layers.1.moe.experts.0.up_proj.weight_scale",
                "F8_E8M0");
    assert_true(fingerprint(copy) != f);
    ckpt_remove(copy);
    ckpt_remove(dir);
}

static void test_changes_under_us_are_noticed(void **state)
{
    char *dir = make(SYNTH_BF16), *other = make(SYNTH_BF16);
    struct model_conf c = {.path = dir, .drafts = -1};
    const char *shard = ckpt_path(dir, "model-00001.safetensors");
    struct checkpoint *ck;
    struct stat st;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    char why[256], text[256];

    (void)state;
    assert_int_equal(checkpoint_open(&c, NULL, &ck), 0);
    assert_int_equal(checkpoint_verify(ck, why, sizeof(why)), 0);
    /* Rename over: the opened file lives on. */
    assert_int_equal(rename(ckpt_path(other, "model-00002.safetensors"),
                            ckpt_path(dir, "model-00002.safetensors")),
                     0);
    assert_int_equal(checkpoint_verify(ck, why, sizeof(why)), 0);
    /* Rewritten in place. */
    assert_int_equal(utimensat(AT_FDCWD, shard, times, 0), 0);
    assert_int_equal(checkpoint_verify(ck, why, sizeof(why)), -ESTALE);
    assert_string_equal(why, "model-00001.safetensors changed under us: it was "
                             "written to");
    /* Cut. */
    assert_int_equal(stat(shard, &st), 0);
    assert_int_equal(truncate(shard, 100), 0);
    assert_int_equal(checkpoint_verify(ck, why, sizeof(why)), -ESTALE);
    snprintf(text, sizeof(text),
             "model-00001.safetensors changed under us: it had %lld bytes, now "
             "it has 100",
             (long long)st.st_size);
    assert_string_equal(why, text);
    checkpoint_close(ck);
    ckpt_remove(dir);
    ckpt_remove(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_checkpoints_of_all_dialects),
        cmocka_unit_test(test_step_tiny),
        cmocka_unit_test(test_compressed_tensors_nvfp4),
        cmocka_unit_test(fr_24_26_fused_and_listed_experts),
        cmocka_unit_test(test_packed_attention_and_dense_layers),
        cmocka_unit_test(fr_21_drafter_is_not_quantised_with_the_rest),
        cmocka_unit_test(test_names_of_mtp_layers),
        cmocka_unit_test(test_lists_of_45_entries_load),
        cmocka_unit_test(test_without_an_index_all_shards_are_read),
        cmocka_unit_test(test_scales_missing_from_the_index),
        cmocka_unit_test(test_inert_parameters_are_not_used),
        cmocka_unit_test(test_quantised_kv_scheme_is_said_and_ignored),
        cmocka_unit_test(test_vision_tensors_are_counted),
        cmocka_unit_test(test_weight_shape_is_of_no_use),
        cmocka_unit_test(test_links_to_shards),
        cmocka_unit_test(fr_20_promised_mtp_layers_are_absent),
        cmocka_unit_test(test_fewer_mtp_layers_are_fewer_drafts),
        cmocka_unit_test(test_half_an_mtp_layer_is_a_problem),
        cmocka_unit_test(test_drafts_0_loads_no_mtp_layer),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_missing_experts),
        cmocka_unit_test(test_missing_scales_of_each_dialect),
        cmocka_unit_test(test_wrong_shapes),
        cmocka_unit_test(test_wrong_dtypes),
        cmocka_unit_test(test_wrong_scales),
        cmocka_unit_test(test_scales_typed_e8m0),
        cmocka_unit_test(fr_29_blocks_that_do_not_divide_the_columns),
        cmocka_unit_test(test_an_expert_in_another_form),
        cmocka_unit_test(test_unknown_tensors),
        cmocka_unit_test(test_a_part_too_many),
        cmocka_unit_test(test_given_twice),
        cmocka_unit_test(fr_23_missing_limits_are_a_load_error),
        cmocka_unit_test(fr_35_index_against_headers),
        cmocka_unit_test(fr_35_listed_shard_is_absent),
        cmocka_unit_test(fr_35_unlisted_shard_is_left_alone),
        cmocka_unit_test(test_index_cannot_leave_the_folder),
        cmocka_unit_test(test_broken_index),
        cmocka_unit_test(test_lfs_pointers_and_empty_files),
        cmocka_unit_test(fr_32_truncated_shard),
        cmocka_unit_test(test_folders_that_hold_no_model),
        cmocka_unit_test(test_draft_checkpoints_are_named_as_such),
        cmocka_unit_test(test_fifty_problems_then_a_count),
        cmocka_unit_test(test_config_and_tensors_disagree),
        cmocka_unit_test(test_patterns_as_python_reads_them),
        cmocka_unit_test(test_unknown_methods_are_refused),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_changes_under_us_are_noticed),
    };

    return test_main(tests, NULL, NULL);
}
