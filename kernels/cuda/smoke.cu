// Proves that code compiled for this GPU runs on it and that its memory holds what was written.
// Usage: smoke GPU. Built and run by probes/run_gpu_program.py; about a second, 32 MiB of GPU memory.
#include "check.cuh"

int main(int argc, char **argv) {
    CHECK(cudaSetDevice(argc > 1 ? std::atoi(argv[1]) : 0));
    uint32_t *data = nullptr;
    CHECK(cudaMalloc(&data, kWords * sizeof *data));
    fill<<<64, 256>>>(data, kWords, 0x51ed270bu);
    CHECK(cudaGetLastError());
    expect(data, 0x51ed270bu);
    CHECK(cudaFree(data));
    std::puts("passed");
    return 0;
}
