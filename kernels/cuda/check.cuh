// What the test programs share: how they end, and the pattern that they move.
//
// The last line that a program writes says more than its status.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr size_t kWords = 4u << 20;  // 16 MiB

// How a program ends, 0 apart: other data arrived than was sent, a call failed, the driver denies it, what it needs is not here.
enum { kWrongData = 2, kFailed = 3, kDenied = 4, kAbsent = 5 };

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t error_ = (call);                                                 \
        if (error_ != cudaSuccess) {                                                 \
            std::printf("%s: %s\n", #call, cudaGetErrorString(error_));              \
            std::exit(kFailed);                                                      \
        }                                                                            \
    } while (0)

__host__ __device__ inline uint32_t pattern(size_t index, uint32_t seed) {
    return static_cast<uint32_t>(index) * 2654435761u ^ seed;
}

static __global__ void fill(uint32_t *data, size_t words, uint32_t seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        data[i] = pattern(i, seed);
}

static __global__ void count_wrong(const uint32_t *data, size_t words, uint32_t seed, unsigned long long *wrong) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x)
        if (data[i] != pattern(i, seed)) atomicAdd(wrong, 1ull);
}

// Counts on the GPU that holds the data, and ends the program if any word is wrong.
static void expect(const uint32_t *data, uint32_t seed) {
    unsigned long long *wrong = nullptr, count = 0;
    CHECK(cudaMalloc(&wrong, sizeof count));
    CHECK(cudaMemset(wrong, 0, sizeof count));
    count_wrong<<<64, 256>>>(data, kWords, seed, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(wrong));
    if (count) {
        std::printf("%llu of %zu words are wrong\n", count, kWords);
        std::exit(kWrongData);
    }
}
