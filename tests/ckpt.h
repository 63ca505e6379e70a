/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors */
#ifndef TESTS_CKPT_H
#define TESTS_CKPT_H

/*
 * Checkpoint folders that a test makes, damages and throws away. Every function
 * fails the running test where it cannot do its work.
 */

#include <stddef.h>

#include "tests/synth.h"

/* A new folder under $TMPDIR with a synthetic checkpoint, or a copy of one (its
 * config.json, index and model-*.safetensors). Freed by ckpt_remove. */
char *ckpt_synth(const struct synth *s);
char *ckpt_copy(const char *from);
void ckpt_remove(char *dir);

/* An empty folder for state, beside a checkpoint's; static. */
char *ckpt_state_folder(const char *dir);

/* "dir/name", in a static ring of eight. */
const char *ckpt_path(const char *dir, const char *name);

/* ---- tensors: the shard that holds it is written anew ---- */

void ckpt_drop(const char *dir, const char *tensor);
void ckpt_rename(const char *dir, const char *tensor, const char *to);
void ckpt_retype(const char *dir, const char *tensor, const char *dtype);
/* shape as JSON: "[8, 96]"; its bytes stay. */
void ckpt_reshape(const char *dir, const char *tensor, const char *shape);
/* n bytes of fill; into a shard that may be new. */
void ckpt_add(const char *dir, const char *shard, const char *tensor,
              const char *dtype, const char *shape, size_t n, int fill);
/* Into another shard, as it is. */
void ckpt_move(const char *dir, const char *tensor, const char *shard);
/* Sets byte at of the tensor. */
void ckpt_poke(const char *dir, const char *tensor, size_t at, int byte);
/* The same for n bytes, each step bytes after the one before. */
void ckpt_poke_many(const char *dir, const char *tensor, size_t at, size_t step,
                    const unsigned char *bytes, size_t n);
/* The shard that holds it, in a static buffer. */
const char *ckpt_shard_of(const char *dir, const char *tensor);
/* Puts n spaces before the end of the header: moves all data of a shard. */
void ckpt_pad(const char *dir, const char *shard, size_t n);

/* ---- JSON files ---- */

/* index: weight_map[tensor] = file; file NULL takes the entry out. */
void ckpt_index(const char *dir, const char *tensor, const char *file);
/* config.json: sets what a path such as "text_config.hidden_size" names, to a
 * JSON value; value NULL takes it out. */
void ckpt_config(const char *dir, const char *path, const char *value);

#endif
