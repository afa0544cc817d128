/* A library with NVML's interface and two GPUs: the second answers less. Layouts: nvml.h of CUDA 13.0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { long index; } Device;
static Device devices[2] = {{0}, {1}};

int nvmlInit_v2(void) {
    const char *mode = getenv("FAKE_NVML");
    if (mode && !strcmp(mode, "mismatch")) return 18;
    if (mode && !strcmp(mode, "hang")) pause();
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device **d) { *d = &devices[i]; return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { snprintf(s, n, "580.159.04"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 13000; return 0; }
int nvmlDeviceGetUUID(Device *d, char *s, unsigned n) { snprintf(s, n, "GPU-%ld", d->index); return 0; }
int nvmlDeviceGetName(Device *d, char *s, unsigned n) { (void)d; snprintf(s, n, "NVIDIA Test"); return 0; }
int nvmlDeviceGetVbiosVersion(Device *d, char *s, unsigned n) { (void)d; snprintf(s, n, "96.00"); return 0; }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *d, Pci *p) { memset(p, 0, sizeof *p); p->bus = 0x65 + d->index; return 0; }
int nvmlDeviceGetCudaComputeCapability(Device *d, int *a, int *b) { (void)d; *a = 12; *b = 0; return 0; }
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device *d, Memory *m) { (void)d; m->total = 1000; m->used = 300; m->free = 700; return 0; }
typedef struct { unsigned gpu, memory; } Use;
int nvmlDeviceGetUtilizationRates(Device *d, Use *u) { (void)d; u->gpu = 42; u->memory = 7; return 0; }
int nvmlDeviceGetPersistenceMode(Device *d, unsigned *m) { *m = d->index == 0; return 0; }
int nvmlDeviceGetComputeMode(Device *d, unsigned *m) { (void)d; *m = 3; return 0; }
int nvmlDeviceGetMigMode(Device *d, unsigned *a, unsigned *b) { (void)d; (void)a; (void)b; return 3; }
int nvmlDeviceGetPerformanceState(Device *d, unsigned *m) { (void)d; *m = 8; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *m) { (void)d; *m = 0x48; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device *d, unsigned *m) { (void)d; *m = 1; return 0; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *d, unsigned *m) { (void)d; *m = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *d, unsigned *m) { *m = d->index ? 8 : 16; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(Device *d, unsigned *m) { (void)d; *m = 16; return 0; }
int nvmlDeviceGetNvLinkState(Device *d, unsigned l, unsigned *s) { if (d->index || l > 2) return 2; *s = l != 1; return 0; }
int nvmlDeviceGetTotalEccErrors(Device *d, int k, int c, unsigned long long *n) {
    if (k != 1 || c != 0) return 2;
    if (d->index) return 3;
    *n = 5;
    return 0;
}
int nvmlDeviceGetRemappedRows(Device *d, unsigned *a, unsigned *b, unsigned *p, unsigned *f) {
    (void)d; *a = 9; *b = 9; *p = 1; *f = 0; return 0;
}
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *n, Process *p) {
    (void)d;
    if (*n < 1) return 7;
    *n = 1; p[0].pid = (unsigned)getppid(); p[0].used = 123; p[0].gi = p[0].ci = ~0u;
    return 0;
}
int nvmlDeviceGetP2PStatus(Device *a, Device *b, int i, unsigned *s) { (void)b; *s = a->index ? 0 : 4 + i; return 0; }
