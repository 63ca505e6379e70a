/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * The safetensors container: what is accepted, and the text of every refusal.
 */
#include "daemon/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/test.h"

static char dir[] = "/tmp/stepd-test-safetensors-XXXXXX";
static int dir_fd = -1;

/* Two tensors, 12 bytes of data. */
#define GOOD                                                              \
    "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[0,8]}," \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}"

static void write_bytes(const void *p, size_t n)
{
    int fd = openat(dir_fd, "f", O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

/* A file of a header as given, with n_header in its length word, and n_data
 * bytes of data. */
static void write_file_n(const char *header, uint64_t n_header, size_t n_data)
{
    char buf[4096];
    size_t n = strlen(header);

    assert_true(8 + n + n_data <= sizeof(buf));
    memset(buf, 0x55, sizeof(buf));
    memcpy(buf, &n_header, 8);
    memcpy(buf + 8, header, n);
    write_bytes(buf, 8 + n + n_data);
}

static void write_file(const char *header, size_t n_data)
{
    write_file_n(header, strlen(header), n_data);
}

static struct model_report open_file(const char *name, struct st_file *ret)
{
    struct report rep;
    struct model_report out = {0};

    report_init(&rep);
    st_open(dir_fd, name, &rep, ret);
    report_finish(&rep, &out);
    assert_int_equal(ret->bad, out.n_problems > 0);
    return out;
}

static void assert_refused(const char *text)
{
    struct st_file f;
    struct model_report out = open_file("f", &f);

    if (out.n_problems != 1) {
        fail_msg("%d problems, expected one: %s", out.n_problems, text);
    }
    assert_string_equal(out.problem[0], text);
    model_report_finish(&out);
    st_close(&f);
}

static void assert_header_refused(const char *header, size_t n_data,
                                  const char *text)
{
    write_file(header, n_data);
    assert_refused(text);
}

static void test_good_file(void **state)
{
    struct st_file f;
    struct model_report out;
    unsigned char byte;

    (void)state;
    write_file(GOOD, 12);
    out = open_file("f", &f);
    assert_int_equal(out.n_problems, 0);
    assert_int_equal(f.n_tensors, 2);
    assert_string_equal(f.tensor[0].name, "a");
    assert_int_equal(f.tensor[0].dtype, ST_BF16);
    assert_int_equal(f.tensor[0].n_dims, 2);
    assert_int_equal(f.tensor[0].dim[1], 2);
    assert_int_equal(f.tensor[0].begin, 8 + strlen(GOOD));
    assert_int_equal(f.tensor[1].end, 8 + strlen(GOOD) + 12);
    assert_int_equal(f.size, 8 + strlen(GOOD) + 12);
    assert_int_equal(st_read(&f, f.tensor[1].begin, &byte, 1), 0);
    assert_int_equal(byte, 0x55);
    assert_int_equal(st_read(&f, f.size, &byte, 1), -EBADMSG);
    st_close(&f);
}

/* Metadata, padding with spaces, empty tensors and scalars are legal. */
static void test_legal_oddities(void **state)
{
    struct st_file f;
    struct model_report out;

    (void)state;
    write_file("{\"__metadata__\":{\"format\":\"pt\"},"
               "\"e\":{\"dtype\":\"U8\",\"shape\":[0,7],"
               "\"data_offsets\":[0,0]},"
               "\"s\":{\"dtype\":\"F32\",\"shape\":[],"
               "\"data_offsets\":[0,4]}}     ",
               4);
    out = open_file("f", &f);
    assert_int_equal(out.n_problems, 0);
    assert_int_equal(f.n_tensors, 2);
    st_close(&f);
}

/* fr_32: cut by one byte, by the last tensor, by all data. */
static void fr_32_truncated_files_name_the_missing_bytes(void **state)
{
    (void)state;
    assert_header_refused(GOOD, 11,
                          "f: truncated: 1 bytes are missing: expected 131, "
                          "found 130; 1 tensors are cut, the first is b");
    assert_header_refused(GOOD, 7,
                          "f: truncated: 5 bytes are missing: expected 131, "
                          "found 126; 2 tensors are cut, the first is a");
    assert_header_refused(GOOD, 0,
                          "f: truncated: 12 bytes are missing: expected 131, "
                          "found 119; 2 tensors are cut, the first is a");
    write_file_n(GOOD, strlen(GOOD) + 100, 12);
    assert_refused("f: truncated: 88 bytes of its header are missing");
}

/* fr_33: everything else that the data area may hold wrong. */
static void fr_33_ranges(void **state)
{
    (void)state;
    assert_header_refused(GOOD, 16,
                          "f: 4 bytes after the last tensor: expected 131, "
                          "found 135");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}",
        12, "f: b: overlaps a by 4 bytes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
        8, "f: b: overlaps a by 2 bytes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}",
        12, "f: b: a hole of 4 bytes before it: expected begin 4, found 8");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8,
        "f: a: a hole of 4 bytes before it: expected begin 0, found 4");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4,
        "f: a: bad data_offsets: expected [begin, end], begin <= end");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,4]}}", 4,
        "f: a: wrong length: expected 6 bytes for BF16 [3], found 4");
}

static void fr_33_shape_overflow(void **state)
{
    (void)state;
    assert_header_refused(
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4294967296,4294967296],"
        "\"data_offsets\":[0,0]}}",
        0,
        "f: a: shape overflow: BF16 [4294967296, 4294967296] is not a number "
        "of bytes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],"
        "\"data_offsets\":[0,4]}}",
        4,
        "f: a: shape overflow: U8 [9223372036854775807] is not a number of "
        "bytes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],"
        "\"data_offsets\":[0,4]}}",
        4,
        "f: bad header: too big integer near '9223372036854775808' (byte 47)");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
        "f: a: shape overflow: F4 [3] is not a number of bytes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
        "\"data_offsets\":[0,1]}}",
        1, "f: a: bad shape: expected a list of at most 8 sizes");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
        "f: a: bad shape: expected a list of at most 8 sizes");
}

static void test_bad_entries(void **state)
{
    (void)state;
    assert_header_refused("{\"a\":7}", 0, "f: a: expected an object");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "f: a: unknown dtype: found Q4");
    assert_header_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                          "f: a: unknown dtype: found nothing");
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
        "f: a: bad data_offsets: expected [begin, end], begin <= end");
    assert_header_refused(
        "{\"a\\n\\u001b[1m\":{\"dtype\":\"U8\",\"shape\":[1],"
        "\"data_offsets\":[0]}}",
        1,
        "f: a\\x0a\\x1b[1m: bad data_offsets: expected [begin, end], begin <= end");
}

static void test_duplicate_names(void **state)
{
    (void)state;
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
        2, "f: bad header: duplicate object key near '\"a\"' (byte 56)");
}

static void test_files_without_a_header(void **state)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n"
                              "oid sha256:00\nsize 6968188464\n";

    (void)state;
    write_bytes("", 0);
    assert_refused("f: empty file");
    write_bytes("1234", 4);
    assert_refused("f: header too small: expected at least 8 bytes, found 4");
    write_bytes(lfs, sizeof(lfs) - 1);
    assert_refused("f: a Git LFS pointer, not the file itself: run git lfs "
                   "pull");
    write_file_n(GOOD, 1, 12);
    assert_refused("f: header too small: expected at least 2 bytes, found 1");
    write_file_n(GOOD, 100000001, 12);
    assert_refused("f: header too large: expected at most 100000000 bytes, "
                   "found 100000001");
    write_file_n(GOOD, (uint64_t)1 << 63, 12);
    assert_refused("f: header too large: expected at most 100000000 bytes, "
                   "found 9223372036854775808");
    assert_header_refused("[1,2]", 0,
                          "f: bad header: it does not begin with a brace");
    assert_header_refused("{\"a\":", 0,
                          "f: bad header: unexpected token near end of file "
                          "(byte 5)");
}

static void test_what_is_not_a_file(void **state)
{
    struct st_file f;
    struct model_report out;

    (void)state;
    out = open_file("absent", &f);
    assert_string_equal(out.problem[0],
                        "absent: cannot be opened: No such file or directory");
    model_report_finish(&out);
    st_close(&f);
    assert_int_equal(mkfifoat(dir_fd, "fifo", 0600), 0);
    out = open_file("fifo", &f);
    assert_string_equal(out.problem[0], "fifo: not a regular file");
    model_report_finish(&out);
    st_close(&f);
    unlinkat(dir_fd, "fifo", 0);
}

/* Several problems of one file come together. */
static void test_all_problems_of_a_file(void **state)
{
    struct st_file f;
    struct model_report out;

    (void)state;
    write_file("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],"
               "\"data_offsets\":[0,4]},"
               "\"b\":{\"dtype\":\"U8\",\"shape\":[4],"
               "\"data_offsets\":[2,6]},"
               "\"c\":{\"dtype\":\"U8\",\"shape\":[4],"
               "\"data_offsets\":[8,12]}}",
               10);
    out = open_file("f", &f);
    assert_int_equal(out.n_problems, 3);
    assert_non_null(strstr(out.problem[0], "truncated: 2 bytes"));
    assert_non_null(strstr(out.problem[1], "b: overlaps a by 2"));
    assert_non_null(strstr(out.problem[2], "c: a hole of 2 bytes"));
    model_report_finish(&out);
    st_close(&f);
}

static int make_dir(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlinkat(dir_fd, "f", 0);
    close(dir_fd);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_legal_oddities),
        cmocka_unit_test(fr_32_truncated_files_name_the_missing_bytes),
        cmocka_unit_test(fr_33_ranges),
        cmocka_unit_test(fr_33_shape_overflow),
        cmocka_unit_test(test_bad_entries),
        cmocka_unit_test(test_duplicate_names),
        cmocka_unit_test(test_files_without_a_header),
        cmocka_unit_test(test_what_is_not_a_file),
        cmocka_unit_test(test_all_problems_of_a_file),
    };

    return test_main(tests, make_dir, remove_dir);
}
