# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Fuzz targets. Without libFuzzer they are programs of make check that replay
# their corpus (replay.c); configured --with-fuzzer they are fuzzers:
#
#   tests/fuzz/fuzz_config tests/fuzz/corpus/config
#
# A target is added by four lines here and a folder corpus/X with at least one
# file, named in EXTRA_DIST.

if WITH_FUZZER
AM_CFLAGS += -fsanitize=fuzzer-no-link
FUZZ_MAIN =
FUZZ_LINK = $(AM_LDFLAGS) -fsanitize=fuzzer
EXTRA_PROGRAMS += $(FUZZ_TARGETS)
else
FUZZ_MAIN = tests/fuzz/replay.c
FUZZ_LINK = $(AM_LDFLAGS)
check_PROGRAMS += $(FUZZ_TARGETS)
endif

FUZZ_TARGETS = tests/fuzz/fuzz_chat
tests_fuzz_fuzz_chat_SOURCES = tests/fuzz/fuzz_chat.c $(FUZZ_MAIN)
tests_fuzz_fuzz_chat_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_chat_LDADD = $(TEXT_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_conf
tests_fuzz_fuzz_conf_SOURCES = tests/fuzz/fuzz_conf.c $(FUZZ_MAIN)
tests_fuzz_fuzz_conf_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_conf_LDADD = $(BASE_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_config
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c $(FUZZ_MAIN)
tests_fuzz_fuzz_config_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_config_LDADD = $(MODEL_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_parse
tests_fuzz_fuzz_parse_SOURCES = tests/fuzz/fuzz_parse.c $(FUZZ_MAIN)
tests_fuzz_fuzz_parse_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_fuzz_parse_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_parse_LDADD = $(TEXT_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_safetensors
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(FUZZ_MAIN)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_safetensors_LDADD = $(MODEL_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_schema
tests_fuzz_fuzz_schema_SOURCES = tests/fuzz/fuzz_schema.c $(FUZZ_MAIN)
tests_fuzz_fuzz_schema_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_fuzz_fuzz_schema_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_schema_LDADD = $(TEXT_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_tokenizer
tests_fuzz_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c $(FUZZ_MAIN)
tests_fuzz_fuzz_tokenizer_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_tokenizer_LDADD = $(TEXT_LIBS)

FUZZ_TARGETS += tests/fuzz/fuzz_wire
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz_wire.c $(FUZZ_MAIN)
tests_fuzz_fuzz_wire_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
tests_fuzz_fuzz_wire_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_fuzz_wire_LDADD = client/libwire.la

noinst_HEADERS += tests/fuzz/fuzz.h
EXTRA_DIST += tests/fuzz/replay.c \
	tests/fuzz/corpus/chat/every-form \
	tests/fuzz/corpus/chat/refused \
	tests/fuzz/corpus/chat/tools \
	tests/fuzz/corpus/conf/file \
	tests/fuzz/corpus/conf/problems \
	tests/fuzz/corpus/conf/set \
	tests/fuzz/corpus/conf/set-time \
	tests/fuzz/corpus/config/dense-short-lists \
	tests/fuzz/corpus/config/flat-fp8 \
	tests/fuzz/corpus/config/nested-mxfp4 \
	tests/fuzz/corpus/parse/bare \
	tests/fuzz/corpus/parse/calls \
	tests/fuzz/corpus/parse/raw \
	tests/fuzz/corpus/parse/stops \
	tests/fuzz/corpus/parse/think \
	tests/fuzz/corpus/parse/tools \
	tests/fuzz/corpus/safetensors/empty \
	tests/fuzz/corpus/safetensors/lfs \
	tests/fuzz/corpus/safetensors/odd \
	tests/fuzz/corpus/safetensors/overlap \
	tests/fuzz/corpus/safetensors/two \
	tests/fuzz/corpus/schema/form-choice \
	tests/fuzz/corpus/schema/form-object \
	tests/fuzz/corpus/schema/regex \
	tests/fuzz/corpus/schema/regex-refused \
	tests/fuzz/corpus/schema/schema-allOf-anyOf \
	tests/fuzz/corpus/schema/schema-extra-keys-alike \
	tests/fuzz/corpus/schema/schema-format-date \
	tests/fuzz/corpus/schema/schema-geo \
	tests/fuzz/corpus/schema/schema-html \
	tests/fuzz/corpus/schema/schema-invoice \
	tests/fuzz/corpus/schema/schema-num-range2 \
	tests/fuzz/corpus/schema/schema-refused \
	tests/fuzz/corpus/schema/schema-tuple-rest \
	tests/fuzz/corpus/schema/tools \
	tests/fuzz/corpus/tokenizer/bytes.json \
	tests/fuzz/corpus/tokenizer/empty-key.json \
	tests/fuzz/corpus/tokenizer/refused.json \
	tests/fuzz/corpus/tokenizer/splits.json \
	tests/fuzz/corpus/wire/event-delta \
	tests/fuzz/corpus/wire/event-done \
	tests/fuzz/corpus/wire/event-error \
	tests/fuzz/corpus/wire/event-hello \
	tests/fuzz/corpus/wire/event-part \
	tests/fuzz/corpus/wire/json-bad \
	tests/fuzz/corpus/wire/json-deep \
	tests/fuzz/corpus/wire/json-duplicate \
	tests/fuzz/corpus/wire/json-values \
	tests/fuzz/corpus/wire/request-bomb \
	tests/fuzz/corpus/wire/request-cancel \
	tests/fuzz/corpus/wire/request-cancel-job \
	tests/fuzz/corpus/wire/request-chat \
	tests/fuzz/corpus/wire/request-complete \
	tests/fuzz/corpus/wire/request-deep \
	tests/fuzz/corpus/wire/request-detokenize \
	tests/fuzz/corpus/wire/request-duplicate \
	tests/fuzz/corpus/wire/request-empty-keys \
	tests/fuzz/corpus/wire/request-ext \
	tests/fuzz/corpus/wire/request-forms \
	tests/fuzz/corpus/wire/request-hello \
	tests/fuzz/corpus/wire/request-later \
	tests/fuzz/corpus/wire/request-many-keys \
	tests/fuzz/corpus/wire/request-nan \
	tests/fuzz/corpus/wire/request-render \
	tests/fuzz/corpus/wire/request-status \
	tests/fuzz/corpus/wire/request-tokenize \
	tests/fuzz/corpus/wire/request-too-deep \
	tests/fuzz/corpus/wire/request-utf8
