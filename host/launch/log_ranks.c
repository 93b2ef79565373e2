/* host/launch/log_ranks.c: see log_ranks.h. */
#include "launch/log_ranks.h"

#include "config/number.h"

static bool read_rank(int64_t *out, const char *part, size_t n) {
    char text[32];
    if (n >= sizeof text) return false;
    (void)snprintf(text, sizeof text, "%.*s", (int)n, part);
    return weft_number_i64(out, text) && *out >= 0;
}

weft_status weft_log_ranks_validate(weft_world *world, const char *list, const weft_config *config, weft_error *err) {
    const char *rest = list, *part = NULL;
    size_t n = 0;
    int64_t rank = 0;
    world->speaks = strcmp(list, "all") == 0;
    if (world->speaks) return WEFT_OK;
    while (weft_part_next(&rest, ',', &part, &n)) {
        if (!read_rank(&rank, part, n))
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "is no list of ranks: give 0, all, or numbers with commas between them (0,2)");
        if (world->size > 1 && rank >= world->size)
            return weft_config_reject(config, "run", "log_ranks", err,
                                      "names rank %lld, and this run has ranks 0 to %d: take it out, or give all",
                                      (long long)rank, (int)world->size - 1);
        world->speaks |= rank == world->rank;
    }
    return WEFT_OK;
}
