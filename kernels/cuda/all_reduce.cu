// Proves that NCCL adds up what all GPUs hold: one process for each GPU, as the workers of an engine are.
// Usage: all_reduce GPU GPU... LIBNCCL. Built and run by probes/run_gpu_program.py; a few seconds, 32 MiB and NCCL's own buffers
// (some hundred MiB) on each GPU. On a machine whose peer access is broken it may never end and may leave the GPUs busy until
// they are reset.
#include "check.cuh"
#include <csignal>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// The part of nccl.h that is used. It has been the same since NCCL 2.0, and a server's environment has no headers.
struct UniqueId {
    char bytes[128];
};
using Communicator = void *;
constexpr int kUint32 = 3, kSum = 0;

struct Nccl {
    int (*version)(int *);
    int (*unique_id)(UniqueId *);
    int (*join)(Communicator *, int ranks, UniqueId, int rank);
    int (*all_reduce)(const void *, void *, size_t, int type, int operation, Communicator, cudaStream_t);
    int (*leave)(Communicator);
    const char *(*error)(int);
};

#define NCCL(call)                                                                   \
    do {                                                                             \
        const int result_ = (call);                                                  \
        if (result_ != 0) {                                                          \
            std::printf("rank %d: %s: %s\n", rank, #call, nccl.error(result_));      \
            std::exit(kFailed);                                                      \
        }                                                                            \
    } while (0)

template <typename Function>
static void find(void *library, const char *name, Function *&function) {
    function = reinterpret_cast<Function *>(dlsym(library, name));
    if (!function) {
        std::printf("%s\n", dlerror());
        std::exit(kAbsent);
    }
}

static Nccl load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        std::printf("%s\n", dlerror());
        std::exit(kAbsent);
    }
    Nccl nccl;
    find(library, "ncclGetVersion", nccl.version);
    find(library, "ncclGetUniqueId", nccl.unique_id);
    find(library, "ncclCommInitRank", nccl.join);
    find(library, "ncclAllReduce", nccl.all_reduce);
    find(library, "ncclCommDestroy", nccl.leave);
    find(library, "ncclGetErrorString", nccl.error);
    return nccl;
}

static __global__ void count_wrong_sums(const uint32_t *data, size_t words, int ranks, unsigned long long *wrong) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < words; i += size_t(gridDim.x) * blockDim.x) {
        uint32_t sum = 0;
        for (int rank = 0; rank < ranks; rank++) sum += pattern(i, rank);
        if (data[i] != sum) atomicAdd(wrong, 1ull);
    }
}

static void add_up(const Nccl &nccl, Communicator communicator, size_t words, int rank, int ranks) {
    uint32_t *own = nullptr, *sum = nullptr;
    unsigned long long *wrong = nullptr, count = 0;
    CHECK(cudaMalloc(&own, words * sizeof *own));
    CHECK(cudaMalloc(&sum, words * sizeof *sum));
    CHECK(cudaMalloc(&wrong, sizeof count));
    CHECK(cudaMemset(wrong, 0, sizeof count));
    fill<<<64, 256>>>(own, words, rank);
    CHECK(cudaGetLastError());
    NCCL(nccl.all_reduce(own, sum, words, kUint32, kSum, communicator, nullptr));
    count_wrong_sums<<<64, 256>>>(sum, words, ranks, wrong);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    if (count) {
        std::printf("rank %d: %llu of %zu sums are wrong\n", rank, count, words);
        std::exit(kWrongData);
    }
    CHECK(cudaFree(own));
    CHECK(cudaFree(sum));
    CHECK(cudaFree(wrong));
}

static int be_rank(int gpu, int rank, int ranks, const char *path, const int *ids) {
    const Nccl nccl = load(path);
    UniqueId id;
    int version = 0;
    NCCL(nccl.version(&version));
    if (rank == 0) {
        NCCL(nccl.unique_id(&id));
        for (int other = 1; other < ranks; other++)
            if (write(ids[1], &id, sizeof id) != sizeof id) return kFailed;
        std::printf("NCCL %d.%d.%d: %d ranks join\n", version / 10000, version / 100 % 100, version % 100, ranks);
    }
    close(ids[1]);
    if (rank != 0 && read(ids[0], &id, sizeof id) != sizeof id) return kFailed;
    CHECK(cudaSetDevice(gpu));
    Communicator communicator = nullptr;
    NCCL(nccl.join(&communicator, ranks, id, rank));
    // Few words take NCCL's low-latency protocols, many its bulk one: either can fail alone.
    for (const size_t words : {size_t(256), kWords}) {
        if (rank == 0) std::printf("all-reduce of %zu bytes\n", words * sizeof(uint32_t));
        add_up(nccl, communicator, words, rank, ranks);
    }
    NCCL(nccl.leave(communicator));
    return 0;
}

// The first rank that ends badly ends the test: the others would wait for it for ever.
static int wait_for_all() {
    int status = 0;
    while (wait(&status) > 0) {
        if (WIFSIGNALED(status)) {
            std::printf("a rank was killed by signal %d\n", WTERMSIG(status));
            return kFailed;
        }
        if (WEXITSTATUS(status)) return WEXITSTATUS(status);
    }
    std::puts("passed");
    return 0;
}

int main(int argc, char **argv) {
    const int ranks = argc - 2;
    int ids[2];
    // What was said last must be in the file when a test that hangs is killed.
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (ranks < 2 || pipe(ids)) return kFailed;
    // Before any CUDA call: a context does not survive a fork.
    for (int rank = 0; rank < ranks; rank++) {
        const pid_t child = fork();
        if (child < 0) return kFailed;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            std::exit(be_rank(std::atoi(argv[1 + rank]), rank, ranks, argv[argc - 1], ids));
        }
    }
    close(ids[0]);
    close(ids[1]);
    return wait_for_all();
}
