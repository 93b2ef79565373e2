/* host/launch/world.c: see world.h. */
#include "launch/world.h"

#include "config/number.h"
#include "launch/heartbeat.h"
#include "launch/log_prefix.h"
#include "launch/signals.h"
#include "plugin/crash.h"
#include "plugin/services.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

weft_status weft_log_ranks_validate(weft_world *world, const char *list, const weft_config *config, weft_error *err) {
    const char *rest = list, *part = NULL;
    char text[32];
    size_t n = 0;
    int64_t rank = 0;
    world->speaks = strcmp(list, "all") == 0;
    if (world->speaks) return WEFT_OK;
    while (weft_part_next(&rest, ',', &part, &n)) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, part);
        if (n >= sizeof text || !weft_number_i64(&rank, text) || rank < 0)
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "is not a list of ranks. Allowed: 0, all, or numbers separated by commas (0,2)");
        if (world->size > 1 && rank >= world->size)
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "contains rank %lld, but this run has ranks 0 to %d. Fix: remove it, or set all",
                                      (long long)rank, (int)world->size - 1);
        world->speaks |= rank == world->rank;
    }
    return WEFT_OK;
}

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

/* Returns the processors of a rank. The local ranks share those of the process that started them, or of the machine. A
 * launcher that binds its ranks has divided them already: then each rank may run on few enough for all. */
static int32_t processors_of_a_rank(int32_t local_size) {
    const char *started = getenv(WEFT_STARTED), *at = started == NULL ? NULL : strchr(started, '/');
    const long shared = at != NULL ? strtol(at + 1, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
    const int32_t allowed = weft_world_allowed();
    if (local_size == 1 || (allowed < shared && (int64_t)allowed * local_size <= shared)) return allowed;
    return allowed / local_size > 0 ? allowed / local_size : 1;
}

static void publish_world(void) {
    weft_host_world *shown = weft_services_world();
    shown->rank = current.rank;
    shown->size = current.size;
    shown->local_rank = current.local_rank;
    shown->local_size = current.local_size;
    shown->processors = processors_of_a_rank(current.local_size);
}

void weft_world_set(const weft_world *world) {
    current = *world;
    if (current.is_planned) {
        /* A single process. A rank's processors determine its memory: as if it ran here with the ranks of its node. */
        const int32_t per_node = current.size / planned_nodes > 0 ? current.size / planned_nodes : 1;
        weft_services_world()->planned = per_node;
        weft_services_world()->processors = processors_of_a_rank(per_node);
        return;
    }
    publish_world();
    if (current.size == 1) return;
    weft_crash_rank(current.rank);
    weft_heartbeat_begin(current.rank);
    weft_log_prefix_set(current.rank, current.rank == 0 || current.speaks);
    weft_signals_rank(current.rank);
}

weft_status weft_world_confirm(const weft_comm_info *info, weft_error *err) {
    if (info->rank != current.rank || info->size != current.size)
        return weft_error_set(err, WEFT_E_PEER,
                              "%s reports that this is rank %d of %d, and %s reports rank %d of %d: start the "
                              "ranks with the launcher of this communicator",
                              info->backend, (int)info->rank, (int)info->size,
                              current.launched_by[0] != '\0' ? current.launched_by : "the command line",
                              (int)current.rank, (int)current.size);
    if (info->local_size < 1 || info->local_size > info->size || info->local_rank < 0 ||
        info->local_rank >= info->local_size)
        return weft_error_set(err, WEFT_E_PLUGIN, "%s reports that this is rank %d of the %d on this machine",
                              info->backend, (int)info->local_rank, (int)info->local_size);
    current.local_rank = info->local_rank;
    current.local_size = info->local_size;
    publish_world();
    return WEFT_OK;
}
