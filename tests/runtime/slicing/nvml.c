/* A stand-in for libnvidia-ml.so.1 with the functions that the inventory asks, at the library's ABI, so that
 * the real binding drives it. The environment chooses: NVML_GPUS how many, NVML_MIG=1 MIG mode with two
 * instances, NVML_FAIL=name:code[,...] what fails and how, NVML_PIDS=1,2 who computes, NVML_USED per cent busy.
 * NVML_XIDS=path a file with a line "gpu xid instance" for each fault, that may grow; NVML_THROTTLE the bits of
 * lowered clocks, NVML_ECC and NVML_ROWS=pending what its memory has suffered.
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
    (void)device; ASKED; snprintf(text, size, "NVIDIA H200"); return OK;
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
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    (void)device; ASKED; memset(attributes, 0, sizeof *attributes); attributes->sms = 60; return OK;
}

typedef struct { Device *device; unsigned long long type, data; unsigned instance, compute; } Event;

int nvmlEventSetCreate(long **set) { ASKED; *set = calloc(1, sizeof **set); return OK; }
int nvmlEventSetFree(long *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, long *set) {
    (void)device; (void)types; (void)set; ASKED; return OK;
}
int nvmlEventSetWait_v2(long *set, Event *event, unsigned timeout_ms) {
    (void)timeout_ms; ASKED;
    const char *path = getenv("NVML_XIDS");
    FILE *file = path ? fopen(path, "r") : NULL;
    int gpu, xid, found = 0;
    unsigned instance;
    if (file && fseek(file, *set, SEEK_SET) == 0 && fscanf(file, "%d %d %u\n", &gpu, &xid, &instance) == 3) {
        devices[gpu][0].gpu = gpu;
        *event = (Event){&devices[gpu][0], 8, xid, instance, 0};
        *set = ftell(file);
        found = 1;
    }
    if (file) fclose(file);
    return found ? OK : 10; /* NVML_ERROR_TIMEOUT */
}
int nvmlDeviceGetTotalEccErrors(Device *device, int kind, int counter, unsigned long long *count) {
    (void)device; (void)kind; (void)counter; ASKED; *count = number("NVML_ECC", 0); return OK;
}
int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    (void)device; ASKED;
    *corrected = *uncorrected = *failed = 0;
    *pending = getenv("NVML_ROWS") != NULL;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *reasons) {
    (void)device; ASKED; *reasons = number("NVML_THROTTLE", 0); return OK;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    (void)device; (void)sensor; ASKED; *celsius = 41; return OK;
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    (void)device; ASKED; *millijoules = 5000; return OK;
}
int nvmlDeviceGetCpuAffinity(Device *device, unsigned words, unsigned long *mask) {
    ASKED;
    memset(mask, 0, words * sizeof *mask);
    mask[0] = 1ul << device->gpu;
    return OK;
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
        if (found < *count) {
            processes[found].pid = atoi(at);
            processes[found].bytes = 600ull << 20;
        }
        found++;
    }
    int code = found > *count ? SMALL : OK;
    *count = found;
    return code;
}
