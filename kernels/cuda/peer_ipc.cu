// Proves that memory of one process's GPU can be read by another process on another GPU, as the workers of an engine do.
// Usage: peer_ipc FROM TO. Built and run by probes/run_gpu_program.py; two seconds, 16 MiB on each GPU.
// On a machine whose peer access is broken it may never end and may leave both GPUs busy until they are reset.
#include "check.cuh"
#include <sys/wait.h>
#include <unistd.h>

constexpr uint32_t kSeed = 0x9e3779b9u;

// The owner of the memory: exports it, then keeps it until the reader has closed its end of `done`.
static int own(int gpu, int handles, int done) {
    uint32_t *data = nullptr;
    cudaIpcMemHandle_t handle;
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaMalloc(&data, kWords * sizeof *data));
    fill<<<64, 256>>>(data, kWords, kSeed);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaIpcGetMemHandle(&handle, data));
    if (write(handles, &handle, sizeof handle) != sizeof handle) return kFailed;
    char end;
    return read(done, &end, 1) == 0 ? 0 : kFailed;
}

static int read_from(int gpu, int handles) {
    cudaIpcMemHandle_t handle;
    void *data = nullptr;
    if (read(handles, &handle, sizeof handle) != sizeof handle) {
        std::puts("the process that owns the memory ended before it shared it");
        return kFailed;
    }
    CHECK(cudaSetDevice(gpu));
    CHECK(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess));
    expect(static_cast<uint32_t *>(data), kSeed);
    CHECK(cudaIpcCloseMemHandle(data));
    std::puts("passed");
    return 0;
}

int main(int argc, char **argv) {
    int handles[2], done[2];
    if (argc < 3 || pipe(handles) || pipe(done)) return kFailed;
    // Before any CUDA call: a context does not survive a fork.
    const pid_t owner = fork();
    if (owner < 0) return kFailed;
    if (owner == 0) {
        close(done[1]);
        std::exit(own(std::atoi(argv[1]), handles[1], done[0]));
    }
    close(handles[1]);
    const int result = read_from(std::atoi(argv[2]), handles[0]);
    close(done[1]);
    int status = 0;
    waitpid(owner, &status, 0);
    return result;
}
