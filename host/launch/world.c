/* host/launch/world.c: see world.h. */
#include "launch/world.h"

#include "launch/heartbeat.h"
#include "launch/signals.h"
#include "launch/log_prefix.h"
#include "plugin/crash.h"
#include "plugin/services.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static weft_world current = {.size = 1, .local_size = 1};
static int32_t planned_nodes = 1;

void weft_world_plan_nodes(int32_t nodes) {
    planned_nodes = nodes;
}

int32_t weft_world_planned_nodes(void) {
    return planned_nodes;
}

const weft_world *weft_world_get(void) {
    return &current;
}

int32_t weft_world_allowed(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1; /* more processors than cpu_set_t supports */
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

/* Returns the processors shared by the local ranks: of the process that started them, or of the machine. */
static int32_t shared_processors(void) {
    const char *started = getenv(WEFT_STARTED);
    const char *at = started == NULL ? NULL : strchr(started, '/');
    const long n = at != NULL ? strtol(at + 1, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

/* Returns the processors of a rank. A launcher that binds its ranks has divided them already: then each rank may run on
 * few enough for all. */
static int32_t processors_of_a_rank(int32_t local_size) {
    const int32_t allowed = weft_world_allowed(), all = shared_processors();
    if (local_size == 1 || (allowed < all && (int64_t)allowed * local_size <= all)) return allowed;
    return allowed / local_size > 0 ? allowed / local_size : 1;
}

static void show_world(void) {
    weft_host_world *shown = weft_services_world();
    shown->rank = current.rank;
    shown->size = current.size;
    shown->local_rank = current.local_rank;
    shown->local_size = current.local_size;
    shown->processors = processors_of_a_rank(current.local_size);
}

/* Publishes the planned world, because a rank's processors determine its memory: as if it ran here with the other ranks
 * of its node. */
static void show_planned(void) {
    const int32_t beside = current.size / planned_nodes;
    weft_services_world()->planned = beside > 0 ? beside : 1;
    weft_services_world()->processors = processors_of_a_rank(beside > 0 ? beside : 1);
}

void weft_world_set(const weft_world *world) {
    current = *world;
    if (current.is_planned) {
        show_planned();
        return; /* a single process, without computation of the planned world */
    }
    show_world();
    if (current.size == 1) return;
    weft_crash_rank(current.rank);
    weft_heartbeat_begin(current.rank);
    weft_log_prefix_set(current.rank, current.rank == 0 || current.speaks);
    weft_signals_rank(current.rank);
}

weft_status weft_world_confirm(const weft_comm_info *info, weft_error *err) {
    if (info->rank != current.rank || info->size != current.size)
        return weft_error_set(err, WEFT_E_PEER,
                              "%s says that this is rank %d of %d, and %s says that it is rank %d of %d: start the "
                              "ranks with the launcher of this communicator",
                              info->backend, (int)info->rank, (int)info->size,
                              current.launched_by[0] != '\0' ? current.launched_by : "the command line",
                              (int)current.rank, (int)current.size);
    if (info->local_size < 1 || info->local_size > info->size || info->local_rank < 0 ||
        info->local_rank >= info->local_size)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s says that this is rank %d of the %d on this machine",
                              info->backend, (int)info->local_rank, (int)info->local_size);
    current.local_rank = info->local_rank;
    current.local_size = info->local_size;
    show_world();
    return WEFT_OK;
}
