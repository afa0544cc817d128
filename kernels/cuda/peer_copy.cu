// Proves that one GPU can copy to another one directly, and that the data which arrives is the data which was sent.
// Usage: peer_copy FROM TO. Built and run by probes/run_gpu_program.py; about a second, 32 MiB on each GPU.
// On a machine whose peer access is broken this copy may never end and may leave both GPUs busy until they are reset.
#include "check.cuh"

int main(int argc, char **argv) {
    if (argc < 3) return kFailed;
    const int from = std::atoi(argv[1]), to = std::atoi(argv[2]);
    int able = 0;
    CHECK(cudaDeviceCanAccessPeer(&able, to, from));
    if (!able) {
        std::printf("the driver denies GPU %d access to GPU %d\n", to, from);
        return kDenied;
    }
    uint32_t *source = nullptr, *target = nullptr;
    CHECK(cudaSetDevice(from));
    CHECK(cudaMalloc(&source, kWords * sizeof *source));
    fill<<<64, 256>>>(source, kWords, 0x2545f491u);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(to));
    CHECK(cudaMalloc(&target, kWords * sizeof *target));
    CHECK(cudaMemset(target, 0, kWords * sizeof *target));
    CHECK(cudaDeviceEnablePeerAccess(from, 0));
    // A kernel that reads the other GPU's memory takes the path of an all-reduce; the copy takes that of a copy engine.
    expect(source, 0x2545f491u);
    CHECK(cudaMemcpyPeer(target, to, source, from, kWords * sizeof *target));
    CHECK(cudaDeviceSynchronize());
    expect(target, 0x2545f491u);
    std::puts("passed");
    return 0;
}
