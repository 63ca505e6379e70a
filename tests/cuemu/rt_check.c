/* SPDX-License-Identifier: Apache-2.0
 * Copyright 2026 The stepd authors
 *
 * What kernels/cuda/rt.c says of each way in which there is no device to
 * compute with: over a CUDA runtime that answers as it is told. Compiled by
 * test_plugin.sh where NVIDIA's headers are, without the runtime: what else of
 * it rt.c calls is dropped by the linker (--gc-sections).
 */
#include "kernels/cuda/rt.c"

#include <string.h>

static cudaError_t count_says, properties_say, set_says;
static int count, major = 8, minor;

cudaError_t cudaGetDeviceCount(int *ret)
{
    if (count_says == cudaSuccess) {
        *ret = count;
    }
    return count_says;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int device)
{
    (void)device;
    memset(ret, 0, sizeof(*ret));
    snprintf(ret->name, sizeof(ret->name), "Old One");
    ret->major = major;
    ret->minor = minor;
    return properties_say;
}

cudaError_t cudaSetDevice(int device)
{
    (void)device;
    return set_says;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
    (void)ret;
    (void)flags;
    return cudaErrorUnknown;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    (void)s;
    return cudaErrorUnknown;
}

const char *cudaGetErrorName(cudaError_t e)
{
    static char name[32];

    snprintf(name, sizeof(name), "error %d", (int)e);
    return name;
}

const char *cudaGetErrorString(cudaError_t e)
{
    (void)e;
    return "whatever it was";
}

static int failed;

static void expect(int device, const char *want)
{
    struct rt *rt = NULL;
    char why[256] = "";
    int r = rt_open(&rt, device, why, sizeof(why));

    if (r != -ENODEV || rt != NULL || strcmp(why, want) != 0) {
        printf("rt_open: %d, \"%s\", not \"%s\"\n", r, why, want);
        failed = 1;
    }
}

int main(void)
{
    count_says = cudaErrorInsufficientDriver;
    expect(-1, "the NVIDIA driver is missing, or older than this CUDA needs "
               "(error 35)");
    count_says = cudaErrorStubLibrary;
    expect(-1, "libcuda is the toolkit's stub, not a driver (error 34)");
    count_says = cudaErrorNoDevice;
    expect(-1, "the driver sees no GPU (error 100)");
    count_says = cudaErrorSystemDriverMismatch;
    expect(-1, "driver and kernel module are of different versions "
               "(error 803)");
    count_says = cudaErrorUnknown;
    expect(-1, "whatever it was (error 999)");
    count_says = cudaSuccess;
    expect(-1, "the driver sees no GPU (error 100)"); /* a count of 0 */
    count = 2;
    expect(2, "there is no GPU 2: the driver sees 2");
    major = 7;
    minor = 5;
    expect(1, "GPU 1 (Old One) has compute capability 7.5: 8.0 is needed");
    major = 9;
    properties_say = cudaErrorUnknown;
    expect(-1, "whatever it was (error 999)");
    properties_say = cudaSuccess;
    set_says = cudaErrorDevicesUnavailable;
    expect(-1, "whatever it was (error 46)");
    set_says = cudaSuccess; /* a stream that cannot be had */
    expect(-1, "whatever it was (error 999)");
    return failed;
}
