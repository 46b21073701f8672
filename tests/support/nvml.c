/* A libnvidia-ml.so.1 for tests: what it answers stands in the file that NVML_STATE names, read at every call.
 *
 * Lines "name value"; a later line wins. gpus N; driver 0 makes every call fail with DRIVER_NOT_LOADED; slow_ms N delays
 * every call of a device. Per GPU I: I.lost 1, I.<metric> VALUE, I.<metric>.error CODE; I.process PID:BYTES:SM (several);
 * I.mig N gives N instances of 10 GiB, instance J told its processes by I.mig.J.process. xid ID:GPU:CODE is handed out
 * once, in the order of IDs. A metric that is not named is not supported. Functions that are not here are not found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, NOT_LOADED = 9, TIMEOUT = 10, LOST = 15 };

typedef struct { int gpu; int instance; } Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { Device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } EventData;
typedef struct {
    unsigned id, scope; long long time_us, latency_us; unsigned type, status; union { double d; unsigned long long u; } value;
} Field;

static Device devices[8], instances[8][8];
static long long delivered, sample_us;

static FILE *state(void) { const char *path = getenv("NVML_STATE"); return path ? fopen(path, "r") : NULL; }

/* Finds the n-th line of a name; returns whether there is one. */
static int line_of(const char *name, int place, char *value) {
    FILE *file = state();
    char line[256], key[128], text[128];
    int found = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %127s", key, text) == 2 && !strcmp(key, name) && (place < 0 || found++ == place)) {
            strcpy(value, text);
            if (place < 0) found = 1; else { fclose(file); return 1; }
        }
    if (file) fclose(file);
    return place < 0 && found;
}

static int number(const char *name, long long *value) {
    char text[128];
    if (!line_of(name, -1, text)) return 0;
    *value = strtoll(text, NULL, 0);
    return 1;
}

static int driver(void) { long long on = 1; number("driver", &on); return on ? OK : NOT_LOADED; }

static int check(Device *device) {
    char name[64];
    long long value = 0;
    if (driver()) return NOT_LOADED;
    if (number("slow_ms", &value)) usleep(value * 1000);
    snprintf(name, sizeof name, "%d.lost", device->gpu);
    value = 0;
    number(name, &value);
    return value ? LOST : OK;
}

static int metric(Device *device, const char *which, long long *value) {
    char name[64];
    long long code;
    int status = check(device);
    if (status) return status;
    snprintf(name, sizeof name, "%d.%s.error", device->gpu, which);
    if (number(name, &code)) return (int)code;
    snprintf(name, sizeof name, "%d.%s", device->gpu, which);
    return number(name, value) ? OK : NOT_SUPPORTED;
}

static int whole(Device *device, const char *which, unsigned *value) {
    long long found = 0;
    int status = metric(device, which, &found);
    if (!status) *value = (unsigned)found;
    return status;
}

int nvmlInitWithFlags(unsigned flags) {
    for (int gpu = 0; gpu < 8; gpu++) {
        devices[gpu] = (Device){gpu, -1};
        for (int place = 0; place < 8; place++) instances[gpu][place] = (Device){gpu, place};
    }
    return driver();
}
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { long long n = 0; number("gpus", &n); *count = n; return driver(); }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.1"); return driver(); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    char name[32];
    long long code = 0;
    *device = &devices[index];
    snprintf(name, sizeof name, "%u.handle.error", index);
    number(name, &code);
    return driver() ? NOT_LOADED : (int)code;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    if (device->instance < 0) snprintf(text, size, "GPU-%d", device->gpu);
    else snprintf(text, size, "MIG-%d-%d", device->gpu, device->instance);
    return check(device);
}
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x3b + device->gpu;
    return check(device);
}
int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *value) { return whole(device, "temperature", value); }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *value) { return whole(device, "power_mw", value); }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *value) { return whole(device, "limit_mw", value); }
int nvmlDeviceGetClockInfo(Device *device, unsigned kind, unsigned *value) {
    return whole(device, kind == 1 ? "sm_mhz" : kind == 2 ? "memory_mhz" : "other_mhz", value);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *value) {
    return metric(device, "reasons", (long long *)value);
}
int nvmlDeviceGetTotalEccErrors(Device *device, unsigned kind, unsigned since, unsigned long long *value) {
    return kind == 1 && since == 0 ? metric(device, "ecc", (long long *)value) : NOT_SUPPORTED;
}
int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *value) { return whole(device, "replays", value); }
int nvmlDeviceGetPcieThroughput(Device *device, unsigned counter, unsigned *value) {
    return whole(device, counter ? "pcie_received_kb" : "pcie_sent_kb", value);
}
int nvmlDeviceGetUtilizationRates(Device *device, Rates *rates) {
    int status = whole(device, "utilization", &rates->gpu);
    return status ? status : whole(device, "memory_activity", &rates->memory);
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    long long used = 0;
    int status = metric(device, "used", &used);
    memory->total = device->instance < 0 ? 85899345920ull : 10737418240ull;
    memory->used = device->instance < 0 ? used : 1073741824ull * (device->instance + 1);
    memory->free = memory->total - memory->used;
    return status;
}
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    int status = check(device);
    for (int row = 0; row < count; row++) {
        char name[32];
        long long value = 0;
        snprintf(name, sizeof name, "field.%u", fields[row].id);
        fields[row].type = 3;
        fields[row].status = status ? status : metric(device, name, &value);
        fields[row].value.u = value;
    }
    return status;
}

static int processes(Device *device, Process *found, Sample *samples, unsigned *count) {
    char name[64], text[128];
    unsigned n = 0, room = *count;
    if (device->instance < 0) snprintf(name, sizeof name, "%d.process", device->gpu);
    else snprintf(name, sizeof name, "%d.mig.%d.process", device->gpu, device->instance);
    int status = check(device);
    if (status) return status;
    for (; line_of(name, n, text); n++) {
        unsigned pid = 0, sm = 0;
        long long bytes = 0;
        sscanf(text, "%u:%lld:%u", &pid, &bytes, &sm);
        if (found && n < room) found[n] = (Process){pid, (unsigned long long)bytes, 0, 0};
        if (samples && n < room) samples[n] = (Sample){pid, ++sample_us, sm, 0, 0, 0};
    }
    *count = n;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
    unsigned room = found ? *count : 0;
    int status = processes(device, found, NULL, count);
    return status ? status : *count > room ? INSUFFICIENT : OK;
}
int nvmlDeviceGetProcessUtilization(Device *device, Sample *samples, unsigned *count, unsigned long long since) {
    unsigned room = samples ? *count : 0;
    int status = processes(device, NULL, samples, count);
    return status ? status : !*count ? NOT_FOUND : *count > room ? INSUFFICIENT : OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    long long n = 0;
    int status = metric(device, "mig", &n);
    *current = *pending = n > 0;
    return status;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { *count = 7; return check(device); }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **instance) {
    long long n = 0;
    int status = metric(device, "mig", &n);
    *instance = &instances[device->gpu][index];
    return status ? status : index < n ? OK : NOT_FOUND;
}
int nvmlEventSetCreate(void **set) { *set = &delivered; return driver(); }
int nvmlEventSetFree(void *set) { return OK; }
int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, void *set) { return kinds == 8 ? OK : NOT_SUPPORTED; }
int nvmlEventSetWait_v2(void *set, EventData *data, unsigned timeout_ms) {
    char text[128];
    if (driver()) return NOT_LOADED;
    for (int place = 0; line_of("xid", place, text); place++) {
        long long id = 0, code = 0;
        int gpu = 0;
        sscanf(text, "%lld:%d:%lld", &id, &gpu, &code);
        if (id > delivered) {
            delivered = id;
            *data = (EventData){&devices[gpu], 8, (unsigned long long)code, ~0u, ~0u};
            return OK;
        }
    }
    return TIMEOUT;
}
