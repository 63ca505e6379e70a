/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * Opens the backend that is named on the command line and prints what opened
 * and what kern_open_named had to say. For test_plugin.sh.
 */

#include <stdio.h>

#include "kernels/kernels.h"

int main(int argc, char **argv)
{
    char why[512] = "", desc[128];
    struct kern_open_args a = {
        .why = why, .why_n = sizeof(why), .n_threads = 1};
    struct kern *k;

    if (argc != 2 || kern_open_named(argv[1], &a, &k) < 0) {
        printf("%s\n", why);
        return 1;
    }
    printf("%s (%s)\n", kern_describe(k, desc, sizeof(desc)), why);
    kern_close(k);
    return 0;
}
