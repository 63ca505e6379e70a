/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Checkpoints that are refused: one damage, one text, to the letter. Tensors
 * against slots (fill.c), the index against headers, folders.
 */
#include <sys/stat.h>

#include "tests/daemon/opened.h"

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
    dir = make(SYNTH_MXFP4);
    put_text(dir, "model.safetensors.index.json",
             "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    assert_problems(dir, "model.safetensors.index.json: a Git LFS pointer, not "
                         "the file itself: run git lfs pull");
    dir = make(SYNTH_MXFP4);
    put_text(dir, "config.json",
             "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    assert_problems(dir, "config.json: a Git LFS pointer, not the file itself: "
                         "run git lfs pull");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };

    return test_main(tests, NULL, NULL);
}
