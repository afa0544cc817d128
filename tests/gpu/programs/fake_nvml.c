/* A FAKE libnvidia-ml.so.1: two made-up GPUs and only the functions named below. FAKE_NVML_HANG names a function that
   never returns, FAKE_NVML_CRASH one that ends the process, FAKE_NVML_LOST a GPU (by index) that is lost once it has been found,
   FAKE_NVML_MIG a GPU (by index) that is divided into instances 0 and 2, each with one process: 500 and 502. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;

#define ENTER(name) do { const char *h = getenv("FAKE_NVML_HANG"); if (h && !strcmp(h, name)) for (;;) pause(); const char *c = getenv("FAKE_NVML_CRASH"); if (c && !strcmp(c, name)) abort(); } while (0)

/* Handles: 1 and 2 are GPUs, 100 and 102 the instances of the divided one. */
static long part(void *device) { return (long)device >= 100 ? (long)device - 100 : -1; }
static long divided(void) { const char *m = getenv("FAKE_NVML_MIG"); return m ? atol(m) : -1; }
static long number(void *device) { return part(device) >= 0 ? divided() : (long)device - 1; }
static int lost(void *device) { const char *l = getenv("FAKE_NVML_LOST"); return l && atol(l) == number(device); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER("nvmlInit"); return getenv("FAKE_NVML_BROKEN") ? 9 : 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == 15 ? "GPU is lost" : code == 3 ? "Not Supported" : "Fake error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "999.1"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)((long)index + 1); return 0; }
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    if (part(device) >= 0) snprintf(out, size, "MIG-fake-%ld", part(device));
    else snprintf(out, size, "GPU-fake-%ld", number(device));
    return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { *now = *next = divided() == number(device); return divided() < 0 ? 3 : 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { (void)device; *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    (void)device;
    *instance = (void *)(long)(100 + index);
    return index == 0 || index == 2 ? 0 : 6;
}
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } process_t;
/* As on a real one, the whole GPU lists the processes of all its instances. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *out) {
    unsigned found = divided() < 0 || divided() != number(device) ? 0 : part(device) >= 0 ? 1 : 2, room = *count;
    *count = found;
    if (room < found) return 7;
    for (unsigned n = 0; n < found; n++) out[n] = (process_t){500 + (part(device) >= 0 ? (unsigned)part(device) : 2 * n), 4096, 0, 0};
    return 0;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) { (void)device; snprintf(out, size, "NVIDIA Fake"); return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02lX:00.0", 0x1b + number(device));
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *m) {
    if (lost(device)) return 15;
    m->total = 1000; m->used = 10; m->free = 990;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, rates_t *r) { ENTER("nvmlDeviceGetUtilizationRates"); r->gpu = 100 * number(device); r->memory = 1; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *mw) { (void)device; *mw = 128000; return 0; }
int nvmlDeviceGetPerformanceState(void *device, int *state) { (void)device; *state = 0; return 3; }
typedef struct { unsigned field, scope; long long timestamp, latency; unsigned type, result; union { double d; unsigned u; unsigned long long ull; } value; } field_t;

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) { ENTER("nvmlDeviceGetNvLinkState"); *active = number(device) == 0 || link != 3; return link < 4 ? 0 : 2; }
int nvmlDeviceGetFieldValues(void *device, int count, field_t *fields) {
    (void)device;
    for (int i = 0; i < count; i++) {
        unsigned f = fields[i].field;
        fields[i].type = 1;
        fields[i].result = f == 91 || f == 138 || f == 139 ? 0 : 3;
        fields[i].value.ull = f == 91 ? 4 : 1000;
    }
    return 0;
}
