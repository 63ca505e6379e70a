/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opening checkpoints: what is accepted in every dialect, with which notes; MTP
 * layers that are not there; identity.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/daemon/opened.h"

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
        cmocka_unit_test(test_config_and_tensors_disagree),
        cmocka_unit_test(test_patterns_as_python_reads_them),
        cmocka_unit_test(test_unknown_methods_are_refused),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_changes_under_us_are_noticed),
    };

    return test_main(tests, NULL, NULL);
}
