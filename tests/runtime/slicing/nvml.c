/* A stand-in for libnvidia-ml.so.1 with the functions that the inventory asks, at the library's ABI, so that
 * the real binding drives it. The environment chooses: NVML_GPUS how many, NVML_MIG=1 MIG mode with two
 * instances, NVML_FAIL=name:code[,...] what fails and how, NVML_PIDS=1,2 who computes, NVML_USED per cent busy.
 * Compiled with -DOLD_DRIVER it lacks what newer drivers brought. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_FOUND = 6, SMALL = 7 };
typedef struct { int gpu, mig; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } Process;
typedef struct {
    unsigned sms, copy, decoders, encoders, jpeg, ofa, slices, compute;
    unsigned long long mb;
} Attributes;

static Device devices[8][3];

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int failing(const char *name) {
    const char *text = getenv("NVML_FAIL");
    const char *at = text ? strstr(text, name) : NULL;
    return at && at[strlen(name)] == ':' ? atoi(at + strlen(name) + 1) : OK;
}
#define ASKED do { int code = failing(__func__); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags) { (void)flags; ASKED; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Stand-in error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ASKED; snprintf(text, size, "580.65.06"); return OK;
}
int nvmlSystemGetCudaDriverVersion(int *version) { ASKED; *version = 13010; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ASKED; *count = number("NVML_GPUS", 1); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index == 1) ASKED; /* of two, the second */
    if (index >= 8) return INVALID;
    devices[index][0].gpu = index;
    *device = &devices[index][0];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    ASKED;
    snprintf(text, size, device->mig ? "MIG-%d-%d" : "GPU-%d", device->gpu, device->mig);
    return OK;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    ASKED; snprintf(text, size, device->mig ? "NVIDIA H200 MIG 3g.71gb" : "NVIDIA H200"); return OK;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    ASKED;
    memory->total = (device->mig ? 71ull : 143771ull) << 20;
    memory->used = 1ull << 30;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    (void)device; ASKED; *milliwatts = 76543; return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    (void)device; ASKED; *milliwatts = 700000; return OK;
}
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *used) {
    (void)device; ASKED; used->gpu = number("NVML_USED", 0); used->memory = 0; return OK;
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    (void)device; ASKED; *major = 9; *minor = 0; return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    (void)device; ASKED; *current = *pending = number("NVML_MIG", 0); return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    (void)device; ASKED; *count = 7; return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **mig) {
    ASKED;
    if (index >= 2) return NOT_FOUND;
    *mig = &devices[device->gpu][index + 1];
    (*mig)->gpu = device->gpu;
    (*mig)->mig = index + 1;
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) { ASKED; *id = 10 * device->mig; return OK; }
int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) { (void)device; ASKED; *id = 0; return OK; }
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    (void)device; ASKED; memset(attributes, 0, sizeof *attributes); attributes->sms = 60; return OK;
}

#ifdef OLD_DRIVER
#define RUNNING nvmlDeviceGetComputeRunningProcesses_v2
#else
#define RUNNING nvmlDeviceGetComputeRunningProcesses_v3
int nvmlDeviceGetNumGpuCores(Device *device, unsigned *cores) {
    (void)device; ASKED; *cores = 16896; return OK;
}
#endif

int RUNNING(Device *device, unsigned *count, Process *processes) {
    const char *text = getenv("NVML_PIDS");
    unsigned found = 0;
    (void)device;
    ASKED;
    for (const char *at = text; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (found < *count) processes[found].pid = atoi(at);
        found++;
    }
    int code = found > *count ? SMALL : OK;
    *count = found;
    return code;
}
