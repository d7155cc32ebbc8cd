/* STAND-IN for NVML (libnvidia-ml.so.1), for tests on machines without a GPU: what it tells was never measured.
 *
 * The power of each of its GPUs rises from 100 W to 300 W in every second of CLOCK_MONOTONIC and then falls at once, and
 * its counter of energy moves ten times a second. STANDIN_GPUS is how many there are (1 unless set), named as by the
 * stand-in for nvidia-smi; STANDIN_NVML makes it `mismatched` (refuses to begin), an `old` driver's (no momentary power)
 * or a `silent` one (neither power nor energy), or has the GPU `throttled` by its power cap, and at a lower clock, in the
 * second half of every second, `limited` in power, `locked` to a lower clock, `idle`, or `shared` by two processes: 4711,
 * called trainer, and 4712, whose name is not known.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, MISMATCH = 18, POWER_INSTANT = 186, SM = 1 };
enum { IDLE = 1, SET_BY_APPLICATIONS = 2, POWER_CAP = 4 };
struct utilisation { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
struct process { unsigned number; unsigned long long memory; unsigned instance, compute_instance; };
struct field { unsigned id, scope; long long timestamp, latency; int kind, code; unsigned long long value; };

static int is(const char *mode) {
    const char *asked = getenv("STANDIN_NVML");
    return asked && !strcmp(asked, mode);
}

static unsigned gpus(void) {
    const char *count = getenv("STANDIN_GPUS");
    return count ? (unsigned)atoi(count) : 1;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Joules since the clock began. */
static double energy(double at) {
    double part = at - floor(at);
    return floor(at) * 200 + 100 * part + 100 * part * part;
}

static int throttled(void) { return is("throttled") && seconds() - floor(seconds()) >= 0.5; }

static double watts(double at) { return 100 + 200 * (at - floor(at)); }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return is("mismatched") ? MISMATCH : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    return code == MISMATCH ? "Driver/library version mismatch" : code == NOT_FOUND ? "Not Found" : "Not Supported";
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.159.04");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = gpus();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) {
    *device = (void *)(size_t)(number + 1);
    return number < gpus() ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    (void)device;
    snprintf(text, length, "NVIDIA H200");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-00000000-0000-0000-0000-%012zu", (size_t)device - 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    char own[64];
    for (size_t number = 1; number <= gpus(); number++) {
        nvmlDeviceGetUUID((void *)number, own, sizeof own);
        *device = (void *)number;
        if (!strcmp(own, uuid)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field *values) {
    (void)device;
    for (int index = 0; index < count; index++) {
        int told = values[index].id == POWER_INSTANT && !is("old") && !is("silent");
        values[index].code = told ? SUCCESS : NOT_SUPPORTED;
        values[index].value = (unsigned)(watts(seconds()) * 1e3);
    }
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    double now = seconds();
    *milliwatts = (unsigned)((energy(now) - energy(now - 1)) * 1e3);
    return is("silent") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device;
    *millijoules = (unsigned long long)(energy(floor(seconds() * 10) / 10) * 1e3);
    return is("silent") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = is("limited") ? 500000 : 700000;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = 700000;
    return is("old") ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found) {
    (void)device;
    unsigned room = *count;
    *count = is("shared") ? 2 : 0;
    if (room < *count) return TOO_SMALL;
    for (unsigned index = 0; index < *count; index++) found[index] = (struct process){4711 + index, 3200000000, 0, 0};
    return SUCCESS;
}

int nvmlSystemGetProcessName(unsigned number, char *text, unsigned length) {
    snprintf(text, length, "/opt/bin/trainer");
    return number == 4711 ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *megahertz) {
    (void)device;
    *megahertz = kind == SM ? (throttled() || is("locked") ? 1485 : is("idle") ? 345 : 1980) : 2619;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *megahertz) {
    (void)device;
    *megahertz = kind == SM ? 1980 : 2619;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = throttled() ? POWER_CAP : is("locked") ? SET_BY_APPLICATIONS : is("idle") ? IDLE : 0;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device, (void)sensor;
    *celsius = 61;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *percent) {
    (void)device;
    *percent = (struct utilisation){87, 42};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *bytes) {
    (void)device;
    *bytes = (struct memory){1ULL << 37, 1ULL << 36, 1ULL << 36};
    return SUCCESS;
}
