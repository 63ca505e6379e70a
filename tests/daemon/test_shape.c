/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * config.json -> struct shape (config.c, shape.c): the published files, what
 * holds where a field is absent, every kind of wrong field named.
 */
#include "daemon/model/shape.h"

#include <errno.h>

#include <jansson.h>

#include "daemon/model/config.h"
#include "tests/test.h"

/* The published config.json, to be changed by a test. */
static json_t *published(void)
{
    json_error_t error;
    json_t *top =
        json_load_file(test_data("config-step-3.7-flash.json"), 0, &error);

    assert_non_null(top);
    return top;
}

static json_t *text_of(json_t *top)
{
    return json_object_get(top, "text_config");
}

/* Parses a changed file (takes the reference). */
static int parse(json_t *top, struct shape *ret, struct model_report *ret_rep)
{
    char *text = json_dumps(top, JSON_COMPACT);
    struct report rep;
    json_t *quant = NULL;
    int r;

    assert_non_null(text);
    report_init(&rep);
    memset(ret_rep, 0, sizeof(*ret_rep));
    r = config_parse(text, strlen(text), &rep, ret, &quant);
    report_finish(&rep, ret_rep);
    json_decref(quant);
    json_decref(top);
    free(text);
    return r;
}

static struct shape parse_good(json_t *top)
{
    struct shape s;
    struct model_report rep;

    if (parse(top, &s, &rep) != 0) {
        fail_msg("%s", rep.problem[0]);
    }
    assert_int_equal(rep.n_problems, 0);
    model_report_finish(&rep);
    return s;
}

/* One problem and this text. */
static void assert_refused(json_t *top, const char *text)
{
    static struct shape s;
    struct model_report rep;

    assert_int_equal(parse(top, &s, &rep), -EBADMSG);
    assert_string_equal(rep.problem[0], text);
    assert_int_equal(rep.n_problems, 1);
    model_report_finish(&rep);
}

/* Sets text_config.key to the JSON value in text; NULL takes it away. */
static json_t *with(const char *key, const char *value)
{
    json_t *top = published();

    if (value == NULL) {
        json_object_del(text_of(top), key);
    } else {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);

        assert_non_null(v);
        json_object_set_new(text_of(top), key, v);
    }
    return top;
}

/* ---- the published file -------------------------------------------------- */

static void test_published_config(void **state)
{
    struct shape s = parse_good(published());

    (void)state;
    assert_string_equal(s.family, "step3p7");
    assert_int_equal(s.hidden, 4096);
    assert_int_equal(s.vocab, 128896);
    assert_int_equal(s.n_layers, 45);
    assert_int_equal(s.n_mtp, 3);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.n_expert, 288);
    assert_int_equal(s.top_k, 8);
    assert_int_equal(s.expert_width, 1280);
    assert_int_equal(s.shared_width, 1280);
    assert_true(s.router_scale == 3.0f);
    assert_true(s.router_renorm && s.router_bias && s.attn_gate);
    assert_true(s.eps == 1e-5f);
    assert_int_equal(s.window, 512);
    assert_int_equal(s.max_model_len, 262144);
    assert_int_equal(s.n_eos, 3);
    assert_int_equal(s.eos[0], 1);
    assert_int_equal(s.eos[1], 2);
    assert_int_equal(s.eos[2], 128007);
    assert_int_equal(s.bos, 0);
    for (int i = 0; i < 48; i++) {
        const struct shape_layer *l = &s.layer[i];
        bool full = i % 4 == 0 && i < 45;

        assert_int_equal(l->sliding, !full);
        assert_int_equal(l->window, full ? 0 : 512);
        assert_int_equal(l->n_head, full ? 64 : 96);
        assert_int_equal(l->n_kv_head, 8);
        assert_int_equal(l->n_freq, full ? 32 : 64);
        assert_true(l->theta == (full ? 5e6 : 1e4));
        assert_int_equal(l->scaled, full);
        assert_int_equal(l->moe, i >= 3 && i < 45);
        assert_int_equal(l->width, l->moe ? 0 : 11264);
        assert_true(l->limit_routed == (i == 43 || i == 44 ? 7.0f : 0.0f));
        assert_true(l->limit_shared == (i == 43 || i == 44 ? 16.0f : 0.0f));
    }
}

/* 3.5 writes the same fields at the top, and another limit at 43. */
static void test_flat_config_is_the_same_model(void **state)
{
    json_t *top = published(), *flat = json_deep_copy(text_of(top));
    json_t *shared = json_object_get(flat, "swiglu_limits_shared");
    struct shape nested = parse_good(top), s;

    (void)state;
    json_array_set_new(shared, 43, json_real(0));
    s = parse_good(flat);
    assert_string_equal(s.family, "step3p5");
    assert_true(s.layer[43].limit_shared == 0.0f);
    memcpy(s.family, nested.family, sizeof(s.family));
    s.layer[43].limit_shared = 16;
    assert_memory_equal(&s, &nested, sizeof(s));
}

/* The values of model-spec 2.3, and both ends of the unscaled table. */
static void test_frequencies_of_full_layers(void **state)
{
    static const double known[] = {
        1.0301961223513454e-03, 5.268819164788597e-04, 2.8368643879333745e-04,
        1.5929085890515005e-04, 9.230576404042796e-05, 5.469018103839541e-05,
        3.2891370912088865e-05};
    struct shape s = parse_good(published());
    float f[64];

    (void)state;
    shape_freqs(&s, 0, f);
    for (int j = 0; j < 14; j++) {
        assert_true(f[j] == (float)pow(5e6, -j / 32.0));
    }
    for (int j = 14; j <= 20; j++) {
        assert_float_equal(f[j] / known[j - 14], 1, 1e-7);
    }
    for (int j = 21; j < 32; j++) {
        assert_true(f[j] == (float)(pow(5e6, -j / 32.0) / 2));
    }
}

static void test_frequencies_of_sliding_layers_are_unscaled(void **state)
{
    struct shape s = parse_good(published());
    float trunk[64], mtp[64];

    (void)state;
    shape_freqs(&s, 1, trunk);
    shape_freqs(&s, 47, mtp);
    for (int j = 0; j < 64; j++) {
        assert_true(trunk[j] == (float)pow(1e4, -j / 64.0));
        assert_true(mtp[j] == trunk[j]);
    }
}

static void test_kv_bytes_of_the_real_model(void **state)
{
    struct shape s = parse_good(published());

    (void)state;
    assert_int_equal(shape_kv_token_bytes(&s, 0), 4096);
    assert_int_equal(shape_page_bytes(&s, MODEL_FULL), 12 * 4096 * 64);
    assert_int_equal(shape_page_bytes(&s, MODEL_SLIDING), 36 * 4096 * 64);
}

/* ---- what holds where something is absent -------------------------------- */

static void cut_lists(json_t *text, size_t n)
{
    static const char *const lists[] = {
        "layer_types", "rope_theta", "partial_rotary_factors", "swiglu_limits",
        "swiglu_limits_shared"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        json_t *list = json_object_get(text, lists[i]);

        while (json_array_size(list) > n) {
            json_array_remove(list, json_array_size(list) - 1);
        }
    }
}

/* fr_20, fr_25: lists cut to the trunk; MTP layers get what the spec says. */
static void fr_20_25_lists_of_45_entries(void **state)
{
    json_t *top = published();
    struct shape whole = parse_good(published()), s;

    (void)state;
    cut_lists(text_of(top), 45);
    s = parse_good(top);
    assert_memory_equal(&s, &whole, sizeof(s));
}

static void test_a_list_shorter_than_the_trunk_is_refused(void **state)
{
    json_t *top = published();
    struct shape s;
    struct model_report rep;

    (void)state;
    cut_lists(text_of(top), 44);
    json_object_set_new(text_of(top), "layer_types", json_array());
    assert_int_equal(parse(top, &s, &rep), -EBADMSG);
    assert_int_equal(rep.n_problems, 5);
    assert_string_equal(rep.problem[0],
                        "config.json: text_config.layer_types: expected a list "
                        "of 45 or 48 entries, found []");
    model_report_finish(&rep);
}

static void test_eps_is_read_where_it_is_given(void **state)
{
    (void)state;
    assert_true(parse_good(with("rms_norm_eps", "1e-6")).eps == 1e-6f);
}

static void test_ids_come_from_the_top_where_text_config_has_none(void **state)
{
    json_t *top = with("eos_token_id", NULL);
    struct shape s;

    (void)state;
    json_object_del(text_of(top), "bos_token_id");
    json_object_set_new(top, "eos_token_id", json_integer(7));
    s = parse_good(top);
    assert_int_equal(s.n_eos, 1);
    assert_int_equal(s.eos[0], 7);
    assert_int_equal(s.bos, -1);
}

static void test_no_scaling_without_rope_scaling(void **state)
{
    struct shape s = parse_good(with("rope_scaling", NULL));

    (void)state;
    assert_false(s.layer[0].scaled);
    assert_int_equal(s.layer[0].n_freq, 32);
}

static void test_moe_layers_as_a_list(void **state)
{
    struct shape s = parse_good(with("moe_layers_enum", "[3, 44]"));

    (void)state;
    for (int i = 0; i < 48; i++) {
        assert_int_equal(s.layer[i].moe, i == 3 || i == 44);
    }
}

/* ---- wrong fields -------------------------------------------------------- */

static void test_each_wrong_field_is_named(void **state)
{
    static const struct {
        const char *key, *value, *text;
    } cases[] = {
        {"hidden_size", NULL,
         "hidden_size: expected an integer from 1 to 65536, found nothing"},
        {"hidden_size", "\"4096\"",
         "hidden_size: expected an integer from 1 to 65536, found \"4096\""},
        {"hidden_size", "-1",
         "hidden_size: expected an integer from 1 to 65536, found -1"},
        {"vocab_size", "1e9",
         "vocab_size: expected an integer from 1 to 4194304, found "
         "1000000000.0"},
        {"num_hidden_layers", "100000",
         "num_hidden_layers: expected an integer from 1 to 256, found 100000"},
        {"num_nextn_predict_layers", "4",
         "num_nextn_predict_layers: expected an integer from 0 to 3, found 4"},
        {"head_dim", "64",
         "head_dim: expected an integer from 128 to 128, found 64"},
        {"rms_norm_eps", "0",
         "rms_norm_eps: expected a number from 1e-12 to 0.1, found 0"},
        {"num_attention_heads", "63",
         "num_attention_heads: expected a multiple of num_attention_groups, "
         "found 63"},
        {"attention_other_setting", NULL,
         "attention_other_setting: expected an object (the sliding layers' "
         "heads), found nothing"},
        {"sliding_window", "0",
         "sliding_window: expected an integer from 1 to 67108864, found 0"},
        {"rope_theta", "\"big\"",
         "rope_theta: expected a list of 45 or 48 entries, found \"big\""},
        {"use_rope_layers", "[1]",
         "use_rope_layers: expected an empty list (RoPE on every layer), found "
         "[1]"},
        {"yarn_only_types", "[]",
         "yarn_only_types: expected a list of layer types, not empty, found "
         "[]"},
        {"sink", "true",
         "sink: expected false (nothing else is supported), found true"},
        {"zero_centered", "false",
         "zero_centered: expected true (nothing else is supported), found "
         "false"},
        {"tie_word_embeddings", "true",
         "tie_word_embeddings: expected false (nothing else is supported), "
         "found true"},
        {"moe_router_activation", "\"softmax\"",
         "moe_router_activation: expected \"sigmoid\", found \"softmax\""},
        {"moe_layers_enum", "\"3,4,x\"",
         "moe_layers_enum: expected the trunk layers with experts, as in "
         "\"3,4,5\", found \"3,4,x\""},
        {"moe_layers_enum", "\"45\"",
         "moe_layers_enum: expected the trunk layers with experts, as in "
         "\"3,4,5\", found \"45\""},
        {"moe_top_k", "289",
         "moe_top_k: expected an integer from 1 to 16, found 289"},
        {"moe_num_experts", "4",
         "moe_top_k: expected at most moe_num_experts, found 8"},
        {"intermediate_size", "[]",
         "intermediate_size: expected an integer from 1 to 262144, found []"},
        {"swiglu_limits", NULL,
         "swiglu_limits: expected a list of 45 or 48 entries, found nothing"},
        {"eos_token_id", "[1, 128896]",
         "eos_token_id: expected an integer from 0 to 128895, found 128896"},
        {"model_type", "\"llama\"",
         "model_type: expected \"step3p5\", found \"llama\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text), "config.json: text_config.%s",
                 cases[i].text);
        assert_refused(with(cases[i].key, cases[i].value), text);
    }
}

/* A field inside an object or a list is named with its way there. */
static void test_inner_fields_are_named(void **state)
{
    json_t *top = published();

    (void)state;
    json_object_set_new(
        json_object_get(text_of(top), "attention_other_setting"), "head_dim",
        json_integer(64));
    assert_refused(top, "config.json: text_config.attention_other_setting."
                        "head_dim: expected an integer from 128 to 128, "
                        "found 64");
    top = published();
    json_object_set_new(json_object_get(text_of(top), "rope_scaling"),
                        "rope_type", json_string("yarn"));
    assert_refused(top, "config.json: text_config.rope_scaling.rope_type: "
                        "expected \"llama3\" or \"default\", found \"yarn\"");
    top = published();
    json_array_set_new(json_object_get(text_of(top), "layer_types"), 7,
                       json_string("linear_attention"));
    assert_refused(top, "config.json: text_config.layer_types[7]: expected "
                        "\"full_attention\" or \"sliding_attention\", found "
                        "\"linear_attention\"");
    top = published();
    json_array_set_new(json_object_get(text_of(top), "swiglu_limits"), 43,
                       json_null());
    assert_refused(top, "config.json: text_config.swiglu_limits[43]: expected "
                        "a number from 0 to 1e+06, found null");
    top = published();
    json_array_set_new(json_object_get(text_of(top), "partial_rotary_factors"),
                       0, json_real(0.3));
    assert_refused(top, "config.json: text_config.partial_rotary_factors[0]: "
                        "expected a share of head_dim that is an even number "
                        "of channels, found 0.29999999999999999");
}

/* fr_39, fr_45: modules are chained because the family's were
 * trained so. A family that is not known gets no guessed wiring: refused. */
static void test_fr_39_45_unknown_families_are_refused(void **state)
{
    json_t *top = published();

    (void)state;
    json_object_set_new(top, "model_type", json_string("deepseek_v3"));
    assert_refused(top, "config.json: model_type: expected \"step3p5\" or "
                        "\"step3p7\", found \"deepseek_v3\"");
    top = published();
    json_object_set_new(text_of(top), "model_type", json_string("mimo_v2"));
    assert_refused(top, "config.json: text_config.model_type: expected "
                        "\"step3p5\", found \"mimo_v2\"");
}

/* All problems at once, not the first only. */
static void test_all_wrong_fields_in_one_report(void **state)
{
    json_t *top = with("moe_intermediate_size", "0");
    struct shape s;
    struct model_report rep;

    (void)state;
    json_object_set_new(text_of(top), "sliding_window", json_string("wide"));
    json_object_set_new(text_of(top), "rope_theta", json_array());
    assert_int_equal(parse(top, &s, &rep), -EBADMSG);
    assert_int_equal(rep.n_problems, 3);
    model_report_finish(&rep);
}

static void assert_text_refused(const char *text, const char *problem)
{
    struct report rep;
    struct model_report out = {0};
    struct shape s;

    report_init(&rep);
    assert_int_equal(config_parse(text, strlen(text), &rep, &s, NULL),
                     -EBADMSG);
    report_finish(&rep, &out);
    assert_string_equal(out.problem[0], problem);
    model_report_finish(&out);
}

static void test_files_that_are_no_config(void **state)
{
    (void)state;
    assert_text_refused("{\"a\": }", "config.json: line 1 column 7: "
                                     "unexpected token near '}'");
    assert_text_refused("[]", "config.json: expected an object");
    assert_text_refused("{\"a\": 1, \"a\": 2}",
                        "config.json: line 1 column 12: duplicate object key "
                        "near '\"a\"'");
    assert_text_refused("{\"text_config\": 1}",
                        "config.json: text_config: expected an object, "
                        "found 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_config),
        cmocka_unit_test(test_flat_config_is_the_same_model),
        cmocka_unit_test(test_frequencies_of_full_layers),
        cmocka_unit_test(test_frequencies_of_sliding_layers_are_unscaled),
        cmocka_unit_test(test_kv_bytes_of_the_real_model),
        cmocka_unit_test(fr_20_25_lists_of_45_entries),
        cmocka_unit_test(test_a_list_shorter_than_the_trunk_is_refused),
        cmocka_unit_test(test_eps_is_read_where_it_is_given),
        cmocka_unit_test(test_ids_come_from_the_top_where_text_config_has_none),
        cmocka_unit_test(test_no_scaling_without_rope_scaling),
        cmocka_unit_test(test_moe_layers_as_a_list),
        cmocka_unit_test(test_each_wrong_field_is_named),
        cmocka_unit_test(test_inner_fields_are_named),
        cmocka_unit_test(test_fr_39_45_unknown_families_are_refused),
        cmocka_unit_test(test_all_wrong_fields_in_one_report),
        cmocka_unit_test(test_files_that_are_no_config),
    };

    return test_main(tests, NULL, NULL);
}
