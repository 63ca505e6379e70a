/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Tensor names: every spelling of the releases, and those that only look like
 * one.
 */
#include "daemon/model/names.h"

#include "tests/test.h"

static struct tensor_name parse(const char *name)
{
    struct tensor_name n;

    name_parse(name, &n);
    return n;
}

static void assert_name(const char *name, int layer, enum role role, int expert,
                        enum part part)
{
    struct tensor_name n = parse(name);

    if (n.kind != NAME_TENSOR || n.layer != layer || n.role != role ||
        n.expert != expert || n.part != part) {
        fail_msg("%s: kind %d, layer %d, role %d, expert %d, part %d", name,
                 n.kind, n.layer, n.role, n.expert, n.part);
    }
}

static void test_published_names(void **state)
{
    (void)state;
    assert_name("model.embed_tokens.weight", -1, ROLE_EMBED, -1, PART_WEIGHT);
    assert_name("model.norm.weight", -1, ROLE_NORM, -1, PART_WEIGHT);
    assert_name("lm_head.weight", -1, ROLE_HEAD, -1, PART_WEIGHT);
    assert_name("model.layers.44.self_attn.g_proj.weight", 44, ROLE_G, -1,
                PART_WEIGHT);
    assert_name("model.layers.3.moe.gate.weight", 3, ROLE_ROUTER, -1,
                PART_WEIGHT);
    assert_name("model.layers.3.moe.gate_proj.weight", 3, ROLE_EXPERT_GATE, -1,
                PART_WEIGHT);
    assert_name("model.layers.3.moe.router_bias", 3, ROLE_ROUTER_BIAS, -1,
                PART_WEIGHT);
    assert_name("model.layers.3.moe.up_proj.weight_scale_inv", 3,
                ROLE_EXPERT_UP, -1, PART_SCALE_INV);
    assert_name("model.layers.3.moe.experts.287.down_proj.weight_packed", 3,
                ROLE_EXPERT_DOWN, 287, PART_PACKED);
    assert_name("model.layers.3.moe.287.down_proj.weight_scale", 3,
                ROLE_EXPERT_DOWN, 287, PART_SCALE);
    assert_name("model.layers.3.share_expert.up_proj.weight", 3, ROLE_SHARED_UP,
                -1, PART_WEIGHT);
    assert_name("model.layers.45.eh_proj.weight", 45, ROLE_EH_PROJ, -1,
                PART_WEIGHT);
}

static void test_prefixes(void **state)
{
    static const char *const prefixes[] = {"", "model.", "language_model.",
                                           "model.language_model.",
                                           "language_model.model."};
    char name[128];

    (void)state;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        snprintf(name, sizeof(name), "%slayers.0.mlp.up_proj.weight",
                 prefixes[i]);
        assert_name(name, 0, ROLE_UP, -1, PART_WEIGHT);
        assert_int_equal(parse(name).n_prefix, strlen(prefixes[i]));
        assert_int_equal(parse(name).n_module, strlen(name) - 7);
    }
    assert_int_equal(parse("model.model.norm.weight").kind, NAME_UNKNOWN);
}

static void test_mtp_names(void **state)
{
    static const char *const heads[] = {
        "transformer.shared_head.output", "transformer.shared_head.head",
        "shared_head.output", "shared_head.head", "mtp_block.shared_head.head"};
    char name[128];

    (void)state;
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        snprintf(name, sizeof(name), "model.layers.47.%s.weight", heads[i]);
        assert_name(name, 47, ROLE_MTP_HEAD, -1, PART_WEIGHT);
        assert_true(parse(name).mtp_only);
    }
    assert_name("model.layers.46.mtp_block.self_attn.k_norm.weight", 46,
                ROLE_K_NORM, -1, PART_WEIGHT);
    assert_true(
        parse("model.layers.46.mtp_block.self_attn.k_norm.weight").mtp_only);
    assert_false(parse("model.layers.46.self_attn.k_norm.weight").mtp_only);
    assert_int_equal(
        parse("model.layers.46.transformer.mlp.up_proj.weight").kind,
        NAME_UNKNOWN);
}

/* Every suffix of the inert family, at any prefix. */
static void test_inert_names(void **state)
{
    static const char *const suffixes[] = {
        "k_scale",      "v_scale",      "q_scale",
        "prob_scale",   "kv_scale",     "k_zero_point",
        "v_zero_point", "q_zero_point", "input_scale"};
    static const char *const places[] = {
        "model.layers.45.self_attn", "model.layers.0.self_attn.attn",
        "model.layers.46.mtp_block.self_attn.k_proj",
        "model.language_model.layers.1.self_attn.qkv_proj", "x"};
    char name[128];

    (void)state;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        for (size_t j = 0; j < sizeof(places) / sizeof(places[0]); j++) {
            snprintf(name, sizeof(name), "%s.%s", places[j], suffixes[i]);
            assert_int_equal(parse(name).kind, NAME_INERT);
        }
    }
    assert_int_equal(parse("model.layers.3.moe.up_proj.weight_scale").kind,
                     NAME_TENSOR);
    assert_int_equal(parse("model.layers.3.moe.up_proj.weight_zero_point").kind,
                     NAME_UNKNOWN);
}

static void test_vision_names(void **state)
{
    (void)state;
    assert_int_equal(parse("vision_model.conv1.weight").kind, NAME_VISION);
    assert_int_equal(parse("model.vision_model.ln_pre.bias").kind, NAME_VISION);
    assert_int_equal(parse("vit_large_projector.weight").kind, NAME_VISION);
    assert_int_equal(parse("model.vit_large_projector.weight").kind,
                     NAME_VISION);
    assert_int_equal(parse("visual.weight").kind, NAME_UNKNOWN);
}

static void test_near_misses_are_unknown(void **state)
{
    static const char *const names[] = {
        "",
        ".",
        "weight",
        "model.",
        "model.layers.",
        "model.layers.x.mlp.up_proj.weight",
        "model.layers.-1.mlp.up_proj.weight",
        "model.layers.00.mlp.up_proj.weight",
        "model.layers.12345678.mlp.up_proj.weight",
        "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.up_proj.bias",
        "model.layers.0.mlp.up_proj.weights",
        "model.layers.0.mlp.up_projx.weight",
        "model.layers.0.moe.experts.up_proj.weight",
        "model.layers.0.moe.experts.1.gate.weight",
        "model.layers.0.moe.1.router_bias",
        "model.layers.0.moe.router_bias.weight",
        "model.layers.0.moe.experts.1..weight",
        "model.embed_tokens",
        "model.embed_tokens.x.weight",
        "model.norm",
        "lm_head.bias"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (parse(names[i]).kind != NAME_UNKNOWN) {
            fail_msg("%s is not unknown", names[i]);
        }
    }
}

/* What name_format writes, name_parse reads. */
static void test_names_round_trip(void **state)
{
    char name[256];

    (void)state;
    for (int role = 0; role < N_ROLES; role++) {
        bool mtp = role >= ROLE_FIRST_OF_MTP;
        int layer = role < ROLE_FIRST_OF_LAYER ? -1 : mtp ? 45 : 7;

        for (int e = -1; e < (role_is_expert((enum role)role) ? 2 : 0); e++) {
            for (int part = 0; part < N_PARTS; part++) {
                if (role == ROLE_ROUTER_BIAS && part != PART_WEIGHT) {
                    continue;
                }
                name_format(name, sizeof(name), layer, mtp, (enum role)role, e,
                            EXPERTS_LISTED, (enum part)part);
                assert_name(name, layer, (enum role)role, e, (enum part)part);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_names),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_mtp_names),
        cmocka_unit_test(test_inert_names),
        cmocka_unit_test(test_vision_names),
        cmocka_unit_test(test_near_misses_are_unknown),
        cmocka_unit_test(test_names_round_trip),
    };

    return test_main(tests, NULL, NULL);
}
