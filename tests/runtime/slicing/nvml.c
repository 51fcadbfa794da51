/* A stand-in for libnvidia-ml.so.1 with the functions that the inventory asks, at the library's ABI, so that
 * the real binding drives it. The environment chooses: NVML_GPUS how many, NVML_MIG=1 MIG mode with two
 * instances, NVML_FAIL=name:code[,...] what fails and how, NVML_PIDS=1,2 who computes, NVML_USED per cent busy.
 * NVML_FLEET=gpu;gpu;... lists GPUs in place of these: h200, a100, or with MIG mode on a100:2g.10gb@0,1g.5gb@6.
 * 2g.10gb@0#3 is GPU instance 3; h200/used=9000/mode=2 has 9000 MiB in use and a compute mode; -h200 is gone.
 * NVIDIA_STANDIN=file: the list is the "gpus" of that file at each moment (tests/gpus/machine.py).
 * NVML_XIDS=path a file with a line "gpu xid instance" for each fault, that may grow; NVML_THROTTLE the bits of
 * lowered clocks, NVML_ECC and NVML_ROWS=pending what its memory has suffered.
 * Compiled with -DOLD_DRIVER it lacks what newer drivers brought. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLEET_BYTES 8192
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, GPUS_MAX = 16, MIG_MAX = 7 };
typedef struct { int gpu, mig; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } Process;
typedef struct {
    unsigned sms, copy, decoders, encoders, jpeg, ofa, slices, compute;
    unsigned long long mb;
} Attributes;
typedef struct { unsigned start, size; } Placement;
typedef struct {
    unsigned version, id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa;
    unsigned long long mb;
    char name[96];
} ProfileInfo;

typedef struct { unsigned index, id; const char *name; unsigned slices, size, most, sms, mb, count, starts[7]; } Profile;
typedef struct { const char *kind, *name; unsigned mb, cores, major; Profile profiles[7]; } Kind;

static const Kind KINDS[] = {
    {"h200", "NVIDIA H200", 143771, 16896, 9, {
        {0, 19, "1g.18gb", 1, 1, 7, 16, 16384, 7, {0, 1, 2, 3, 4, 5, 6}},
        {7, 20, "1g.18gb+me", 1, 1, 1, 16, 16384, 7, {0, 1, 2, 3, 4, 5, 6}},
        {9, 15, "1g.35gb", 1, 2, 4, 26, 33024, 4, {0, 2, 4, 6}},
        {1, 14, "2g.35gb", 2, 2, 3, 32, 33024, 3, {0, 2, 4}},
        {2, 9, "3g.71gb", 3, 4, 2, 60, 71168, 2, {0, 4}},
        {3, 5, "4g.71gb", 4, 4, 1, 64, 71168, 1, {0}},
        {4, 0, "7g.141gb", 7, 8, 1, 132, 142336, 1, {0}}}},
    {"a100", "NVIDIA A100-SXM4-40GB", 40960, 6912, 8, {
        {0, 19, "1g.5gb", 1, 1, 7, 14, 4864, 7, {0, 1, 2, 3, 4, 5, 6}},
        {7, 20, "1g.5gb+me", 1, 1, 1, 14, 4864, 7, {0, 1, 2, 3, 4, 5, 6}},
        {9, 15, "1g.10gb", 1, 2, 4, 14, 9856, 4, {0, 2, 4, 6}},
        {1, 14, "2g.10gb", 2, 2, 3, 28, 9856, 3, {0, 2, 4}},
        {2, 9, "3g.20gb", 3, 4, 2, 42, 19968, 2, {0, 4}},
        {3, 5, "4g.20gb", 4, 4, 1, 56, 19968, 1, {0}},
        {4, 0, "7g.40gb", 7, 8, 1, 98, 40192, 1, {0}}}},
};

static Device devices[GPUS_MAX][MIG_MAX + 1];

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

/* The text of the part of that number, "" where there is none. */
static const char *part(const char *text, char between, int index, char *copy, size_t size) {
    for (; index > 0 && text; index--) text = strchr(text, between) ? strchr(text, between) + 1 : NULL;
    snprintf(copy, size, "%s", text ? text : "");
    if (strchr(copy, between)) *strchr(copy, between) = 0;
    return copy;
}

/* The list of GPUs, NULL where neither the file nor NVML_FLEET has one. */
static const char *fleet(void) {
    static _Thread_local char content[FLEET_BYTES], list[FLEET_BYTES];
    const char *path = getenv("NVIDIA_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return getenv("NVML_FLEET");
    content[fread(content, 1, sizeof content - 1, file)] = 0;
    fclose(file);
    const char *from = strstr(content, "\"gpus\": [");
    size_t length = 0;
    int inside = 0;
    for (from = from ? from + 9 : ""; *from && *from != ']'; from++)
        if (*from == '"') inside = !inside;
        else if (inside || *from == ',') list[length++] = inside ? *from : ';';
    list[length] = 0;
    return list;
}

static void entry(int gpu, char *copy, size_t size) {
    const char *list = fleet();
    if (list) part(list, ';', gpu, copy, size);
    else snprintf(copy, size, number("NVML_MIG", 0) ? "h200:3g.71gb@0,3g.71gb@4" : "h200");
}

static const Kind *kind(const Device *device) {
    char text[256];
    entry(device->gpu, text, sizeof text);
    return strncmp(text, KINDS[1].kind, 4) ? &KINDS[0] : &KINDS[1];
}

static int mig_mode(int gpu) {
    char text[256];
    entry(gpu, text, sizeof text);
    return strchr(text, ':') != NULL;
}

/* The place in the list of the GPU of that index, -1 where there is none: those that are gone do not count. */
static int place(unsigned index) {
    const char *list = fleet();
    int places = number("NVML_GPUS", 1);
    if (list) for (places = *list != 0; *list; list++) places += *list == ';';
    for (int each = 0; each < places && each < GPUS_MAX; each++) {
        char text[256];
        entry(each, text, sizeof text);
        if (*text != '-' && index-- == 0) return each;
    }
    return -1;
}

/* A number that the entry of a GPU states. */
static long stated(int gpu, const char *name, long otherwise) {
    char text[256];
    entry(gpu, text, sizeof text);
    const char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : otherwise;
}

/* The profile of a MIG device (its number begins at 1), NULL where there is no such instance. */
static const Profile *instance(int gpu, int mig, int *id) {
    char text[256], one[64];
    entry(gpu, text, sizeof text);
    const char *list = strchr(text, ':');
    part(list ? list + 1 : "", ',', mig - 1, one, sizeof one);
    if (id) *id = strchr(one, '#') ? atoi(strchr(one, '#') + 1) : 0;
    if (strchr(one, '@')) *strchr(one, '@') = 0;
    const Device device = {gpu, 0};
    for (int n = 0; n < 7; n++)
        if (!strcmp(kind(&device)->profiles[n].name, one)) return &kind(&device)->profiles[n];
    return NULL;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ASKED; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Stand-in error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ASKED; snprintf(text, size, "580.65.06"); return OK;
}
int nvmlSystemGetCudaDriverVersion(int *version) { ASKED; *version = 13010; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    ASKED;
    for (*count = 0; place(*count) >= 0;) ++*count;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index == 1) ASKED; /* of two, the second */
    int at = place(index);
    if (at < 0) return INVALID;
    devices[at][0].gpu = at;
    *device = &devices[at][0];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    ASKED;
    int id = 0;
    if (device->mig) instance(device->gpu, device->mig, &id);
    snprintf(text, size, device->mig ? "MIG-%d-%d" : "GPU-%d", device->gpu, id ? id : device->mig);
    return OK;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    ASKED;
    const Profile *profile = device->mig ? instance(device->gpu, device->mig, NULL) : NULL;
    snprintf(text, size, profile ? "%s MIG %s" : "%s", kind(device)->name, profile ? profile->name : "");
    return OK;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    ASKED;
    const Profile *profile = device->mig ? instance(device->gpu, device->mig, NULL) : NULL;
    memory->total = (unsigned long long)(profile ? profile->mb : kind(device)->mb) << 20;
    memory->used = (unsigned long long)(profile ? 1024 : stated(device->gpu, "/used=", 1024)) << 20;
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
    ASKED; *major = kind(device)->major; *minor = 0; return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    ASKED; *current = *pending = mig_mode(device->gpu); return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    (void)device; ASKED; *count = MIG_MAX; return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **mig) {
    ASKED;
    if (index >= MIG_MAX || !instance(device->gpu, index + 1, NULL)) return NOT_FOUND;
    *mig = &devices[device->gpu][index + 1];
    (*mig)->gpu = device->gpu;
    (*mig)->mig = index + 1;
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    ASKED;
    int own = 0;
    instance(device->gpu, device->mig, &own);
    *id = own ? own : 10 * device->mig;
    return OK;
}
int nvmlDeviceGetComputeMode(Device *device, unsigned *mode) {
    ASKED; *mode = stated(device->gpu, "/mode=", 0); return OK;
}
int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) { (void)device; ASKED; *id = 0; return OK; }
int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    ASKED;
    memset(attributes, 0, sizeof *attributes);
    const Profile *profile = instance(device->gpu, device->mig, NULL);
    if (!profile) return NOT_SUPPORTED;
    attributes->sms = profile->sms;
    return OK;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    Device *device, unsigned id, Placement *placements, unsigned *count) {
    ASKED;
    if (!mig_mode(device->gpu)) return NOT_SUPPORTED;
    for (const Profile *each = kind(device)->profiles; each < kind(device)->profiles + 7; each++) {
        if (each->id != id) continue;
        *count = each->count;
        for (unsigned n = 0; placements && n < each->count; n++)
            placements[n] = (Placement){each->starts[each->count - 1 - n], each->size}; /* in no order */
        return OK;
    }
    return NOT_SUPPORTED;
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
    ASKED; *cores = kind(device)->cores; return OK;
}
int nvmlDeviceGetGpuInstanceProfileInfoV(Device *device, unsigned index, ProfileInfo *info) {
    ASKED;
    if (info->version != (sizeof *info | 2u << 24)) return INVALID;
    for (const Profile *each = kind(device)->profiles; each < kind(device)->profiles + 7; each++) {
        if (each->index != index) continue;
        info->id = each->id;
        info->slices = each->slices;
        info->instances = each->most;
        info->sms = each->sms;
        info->mb = each->mb;
        snprintf(info->name, sizeof info->name, "MIG %s", each->name);
        return OK;
    }
    return NOT_SUPPORTED;
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
