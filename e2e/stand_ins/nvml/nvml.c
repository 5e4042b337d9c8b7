/* A stand-in for NVIDIA's libnvidia-ml.so.1: answers come from the file that PLIMSOLL_NVML_ANSWERS names,
 * read anew at each call, one `key value` a line. No driver and no card is behind it.
 *
 * Of nvml.h it has the calls that Plimsoll's agent makes, with their structures and error codes. A key that
 * is missing is NVML_ERROR_NOT_SUPPORTED; `KEY.error N` answers N. -DOLD_DRIVER leaves out what came later.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, VERSION_MISMATCH = 25
};
#define MIG_SLOTS 8
#define CARDS 64

typedef unsigned long long u64;
typedef struct { char key[32]; } device; /* "3" is a card, "3.mig.1" a slice of it */

static device cards[CARDS], slices[CARDS][MIG_SLOTS];
static long told_event = -1; /* the value of `event` that was last told */

static int find(const char *key, char *value, size_t length) {
    const char *path = getenv("PLIMSOLL_NVML_ANSWERS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t wanted = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, wanted) == 0 && line[wanted] == ' ') {
            snprintf(value, length, "%s", line + wanted + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

/* The text of PREFIX.NAME (or NAME alone), or an error. */
static int text_of(const device *of, const char *name, char *value, size_t length) {
    char key[96], error[128], code[16];
    snprintf(key, sizeof key, "%s%s%s", of ? of->key : "", of ? "." : "", name);
    snprintf(error, sizeof error, "%s.error", key);
    if (find(error, code, sizeof code)) return atoi(code);
    return find(key, value, length) ? SUCCESS : NOT_SUPPORTED;
}

static int number_of(const device *of, const char *name, u64 *value) {
    char text[64];
    int status = text_of(of, name, text, sizeof text);
    if (status == SUCCESS) *value = strtoull(text, NULL, 10);
    return status;
}

static int small_of(const device *of, const char *name, unsigned *value) {
    u64 big = 0;
    int status = number_of(of, name, &big);
    if (status == SUCCESS) *value = (unsigned)big;
    return status;
}

/* ---- starting ---- */

int nvmlInitWithFlags(unsigned flags) {
    char value[16];
    (void)flags;
    for (int card = 0; card < CARDS; card++) {
        snprintf(cards[card].key, sizeof cards[card].key, "%d", card);
        for (int slot = 0; slot < MIG_SLOTS; slot++)
            snprintf(slices[card][slot].key, sizeof slices[card][slot].key, "%d.mig.%d", card, slot);
    }
    int status = text_of(NULL, "init", value, sizeof value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int status) { (void)status; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *value, unsigned length) {
    return text_of(NULL, "driver", value, length);
}

/* ---- cards ---- */

int nvmlDeviceGetCount_v2(unsigned *count) { return small_of(NULL, "count", count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **handle) {
    u64 nothing;
    if (index >= CARDS) return INVALID_ARGUMENT;
    int status = number_of(&cards[index], "handle", &nothing);
    if (status != SUCCESS && status != NOT_SUPPORTED) return status;
    *handle = &cards[index];
    return SUCCESS;
}
int nvmlDeviceGetName(device *of, char *value, unsigned length) {
    return text_of(of, "name", value, length);
}
int nvmlDeviceGetUUID(device *of, char *value, unsigned length) {
    return text_of(of, "uuid", value, length);
}
int nvmlDeviceGetCudaComputeCapability(device *of, int *major, int *minor) {
    char value[16];
    int status = text_of(of, "capability", value, sizeof value);
    if (status == SUCCESS && sscanf(value, "%d.%d", major, minor) != 2) return INVALID_ARGUMENT;
    return status;
}
int nvmlDeviceGetEccMode(device *of, unsigned *now, unsigned *pending) {
    int status = small_of(of, "ecc", now);
    *pending = *now;
    return status;
}

typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;

int nvmlDeviceGetMemoryInfo(device *of, memory_v1 *memory) {
    u64 reserved = 0, used = 0;
    int status = number_of(of, "memory", &memory->total);
    if (status != SUCCESS) return status;
    number_of(of, "reserved", &reserved);
    number_of(of, "used", &used);
    memory->used = used + reserved; /* nvml.h: the first version's used is reserved and allocated */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(device *of, memory_v2 *memory) {
    if (memory->version != 0x02000028) return VERSION_MISMATCH;
    int status = number_of(of, "memory", &memory->total);
    if (status != SUCCESS) return status;
    memory->reserved = memory->used = 0;
    number_of(of, "reserved", &memory->reserved);
    number_of(of, "used", &memory->used);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}
typedef struct { unsigned version, value; } addressing;
int nvmlDeviceGetAddressingMode(device *of, addressing *mode) {
    if (mode->version != 0x1000008) return VERSION_MISMATCH;
    return small_of(of, "addressing", &mode->value);
}
#endif

/* ---- slices ---- */

int nvmlDeviceGetMigMode(device *of, unsigned *now, unsigned *pending) {
    int status = small_of(of, "mig", now);
    *pending = *now;
    return status;
}
int nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned *count) { return small_of(of, "slots", count); }
int nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned index, device **handle) {
    char name[96];
    if (index >= MIG_SLOTS) return INVALID_ARGUMENT;
    device *slice = &slices[of - cards][index];
    if (text_of(slice, "uuid", name, sizeof name) == NOT_SUPPORTED) return NOT_FOUND;
    *handle = slice;
    return SUCCESS;
}
typedef struct {
    unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, slices, compute_slices;
    u64 memory_mib;
} attributes;
int nvmlDeviceGetAttributes_v2(device *of, attributes *told) {
    memset(told, 0, sizeof *told);
    int status = small_of(of, "slices", &told->slices);
    if (status != SUCCESS) return status;
    told->compute_slices = told->slices;
    small_of(of, "compute_slices", &told->compute_slices);
    return number_of(of, "memory_mib", &told->memory_mib);
}

/* ---- processes: `graphics` and `compute` are pid:bytes, several with commas ---- */

typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process;

static int processes(device *of, const char *name, unsigned *count, process *found) {
    char text[256], *rest = text, *one;
    unsigned length = 0, room = *count;
    int status = text_of(of, name, text, sizeof text);
    if (status == NOT_SUPPORTED) { *count = 0; return SUCCESS; }
    if (status != SUCCESS) return status;
    while ((one = strsep(&rest, ",")) != NULL) {
        if (length < room && found) {
            memset(&found[length], 0, sizeof *found);
            if (sscanf(one, "%u:%llu", &found[length].pid, &found[length].used) < 2)
                found[length].used = ~0ULL; /* NVML_VALUE_NOT_AVAILABLE */
        }
        length++;
    }
    *count = length;
    return length > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(device *of, unsigned *count, process *found) {
    return processes(of, "graphics", count, found);
}
int nvmlDeviceGetComputeRunningProcesses_v2(device *of, unsigned *count, process *found) {
    return processes(of, "compute", count, found);
}
#ifndef OLD_DRIVER
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *of, unsigned *count, process *found) {
    return processes(of, "graphics", count, found);
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *of, unsigned *count, process *found) {
    return processes(of, "compute", count, found);
}
#endif

/* ---- events: `events` are the supported types, a new value of `event` is a new Xid ---- */

typedef struct { device *of; u64 type, data; unsigned gpu_instance, compute_instance; } event;

int nvmlEventSetCreate(void **set) {
    u64 now = 0;
    int status = number_of(NULL, "event_set", &now);
    if (status != SUCCESS && status != NOT_SUPPORTED) return status;
    told_event = number_of(NULL, "event", &now) == SUCCESS ? (long)now : -1;
    *set = &told_event;
    return SUCCESS;
}
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(device *of, u64 *types) { return number_of(of, "events", types); }
int nvmlDeviceRegisterEvents(device *of, u64 types, void *set) {
    (void)of; (void)types; (void)set;
    return SUCCESS;
}
int nvmlEventSetWait_v2(void *set, event *told, unsigned milliseconds) {
    u64 now = 0;
    (void)set;
    for (unsigned waited = 0;; waited += 20) {
        int status = number_of(NULL, "event", &now);
        if (status == SUCCESS && (long)now != told_event) {
            told_event = (long)now;
            memset(told, 0, sizeof *told);
            told->of = &cards[0];
            told->type = 8; /* nvmlEventTypeXidCriticalError */
            told->data = now;
            return SUCCESS;
        }
        if (status != SUCCESS && status != NOT_SUPPORTED) return status;
        if (waited >= milliseconds) return TIMEOUT;
        usleep(20000);
    }
}

/* ---- the node's own events: a new value of `bound` is a card that came or went ---- */

#ifndef OLD_DRIVER
typedef struct { unsigned version; void *set; } system_set;
typedef struct { unsigned version; u64 types; void *set; } system_types;
typedef struct { u64 type; unsigned card; } system_event;
typedef struct {
    unsigned version, milliseconds;
    void *set;
    system_event *told;
    unsigned room, count;
} system_wait;

static long told_bound = -1;

int nvmlSystemEventSetCreate(system_set *asked) {
    u64 now = 0;
    if (asked->version != 0x1000010) return VERSION_MISMATCH;
    int status = number_of(NULL, "system_events", &now);
    if (status != SUCCESS) return status;
    told_bound = number_of(NULL, "bound", &now) == SUCCESS ? (long)now : -1;
    asked->set = &told_bound;
    return SUCCESS;
}
int nvmlSystemEventSetFree(system_set *asked) {
    return asked->version == 0x1000010 ? SUCCESS : VERSION_MISMATCH;
}
int nvmlSystemRegisterEvents(system_types *asked) {
    return asked->version == 0x1000018 ? SUCCESS : VERSION_MISMATCH;
}
int nvmlSystemEventSetWait(system_wait *asked) {
    u64 now = 0;
    if (asked->version != 0x1000020) return VERSION_MISMATCH;
    for (unsigned waited = 0;; waited += 20) {
        int status = number_of(NULL, "bound", &now);
        if (status == SUCCESS && (long)now != told_bound && asked->room) {
            told_bound = (long)now;
            asked->told[0].type = 2; /* nvmlSystemEventTypeGpuDriverBind */
            asked->told[0].card = (unsigned)now;
            asked->count = 1;
            return SUCCESS;
        }
        if (waited >= asked->milliseconds) return TIMEOUT;
        usleep(20000);
    }
}
#endif
