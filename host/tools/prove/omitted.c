/* host/tools/prove/omitted.c: see omitted.h. */
#include "tools/prove/omitted.h"

enum { SHOWN_RANKS = 8 };

void weft_omitted_say(weft_omitted *self, const char *format, ...) {
    va_list args;
    if (self->n == WEFT_MOST_OMITTED) return;
    va_start(args, format);
    (void)vsnprintf(self->text[self->n++], WEFT_OMITTED_SIZE, format, args);
    va_end(args);
}

/* "mp, ddp, fsdp" of those that there are; "": none. */
static void list_strategies(char text[32], bool mp, bool ddp, bool fsdp) {
    (void)snprintf(text, 32, "%s%s%s%s%s", mp ? "mp" : "", mp && (ddp || fsdp) ? ", " : "", ddp ? "ddp" : "",
                   ddp && fsdp ? ", " : "", fsdp ? "fsdp" : "");
}

/* "3, 4" of the numbers of ranks that do not pass; "": all do. */
static void list_ranks(char text[160], const weft_grid_spec *spec,
                       bool (*passes)(const weft_grid_spec *spec, int32_t ranks)) {
    size_t n = 0;
    int32_t found = 0;
    text[0] = '\0';
    for (int32_t ranks = 2; ranks <= spec->world; ranks++) {
        if (passes(spec, ranks)) continue;
        if (found++ < SHOWN_RANKS) n += (size_t)snprintf(text + n, 160 - n, "%s%d", n == 0 ? "" : ", ", (int)ranks);
    }
    if (found > SHOWN_RANKS) (void)snprintf(text + n, 160 - n, " and %d more", (int)(found - SHOWN_RANKS));
}

static bool has_segments(const weft_grid_spec *spec, int32_t ranks) {
    return ranks <= spec->segments;
}

static bool is_short_or_whole(const weft_grid_spec *spec, int32_t ranks) {
    return ranks > spec->segments || weft_grid_takes_stages(spec, ranks);
}

static void find_stages(weft_omitted *out, const weft_grid_spec *spec) {
    char ranks[160];
    if (!spec->has_mp) return;
    list_ranks(ranks, spec, has_segments);
    if (ranks[0] != '\0')
        weft_omitted_say(out, "mp on %s ranks: the model has %d segment%s, and each rank runs one at least", ranks,
                         (int)spec->segments, spec->segments == 1 ? "" : "s");
    list_ranks(ranks, spec, is_short_or_whole);
    if (ranks[0] != '\0')
        weft_omitted_say(out, "mp on %s ranks: of its longer pipelines only that of all ranks is tried", ranks);
}

static bool has_map(const weft_grid_spec *spec, int32_t ranks) {
    return !weft_grid_takes_stages(spec, ranks) || weft_grid_takes_map(spec, ranks);
}

static void find_map(weft_omitted *out, const weft_grid_spec *spec) {
    char ranks[160];
    if (!spec->has_mp || spec->map_ranks == 0) return;
    list_ranks(ranks, spec, has_map);
    if (spec->device_map[0] == '\0')
        weft_omitted_say(out, "the configuration's device_map, which has more than %d letters: mp runs with auto",
                         WEFT_GRID_MAP - 1);
    else if (ranks[0] != '\0')
        weft_omitted_say(out, "the configuration's device_map on %s ranks: it is for %d; mp runs with auto there",
                         ranks, (int)spec->map_ranks);
    if (spec->device_map[0] != '\0' && !spec->map_1f1b && spec->map_ranks <= spec->world)
        weft_omitted_say(out,
                         "the configuration's device_map under 1f1b, which it is not set for: mp runs with auto there");
}

static void find_replicas(weft_omitted *out, const weft_grid_spec *spec, int64_t micro_batch) {
    char ranks[160], names[32];
    list_ranks(ranks, spec, weft_grid_takes_replicas);
    list_strategies(names, false, spec->has_ddp, spec->has_fsdp);
    if (names[0] == '\0' || ranks[0] == '\0') return;
    weft_omitted_say(out,
                     "%s on %s ranks: %d %s a step cannot be shared evenly by so many; for N ranks set [train] "
                     "global_batch to a multiple of N x micro_batch, which is %lld",
                     names, ranks, (int)spec->micro_batches, spec->micro_batches == 1 ? "micro-batch" : "micro-batches",
                     (long long)micro_batch);
}

void weft_omitted_find(weft_omitted *out, const weft_grid_spec *spec, const char *missing, const char *alone,
                       int64_t micro_batch) {
    char names[32];
    list_strategies(names, spec->has_mp, spec->has_ddp, spec->has_fsdp);
    if (missing[0] != '\0') weft_omitted_say(out, "strategy %s, which there is no plugin of", missing);
    if (spec->world == 1 && names[0] != '\0')
        weft_omitted_say(out, "%s: %s", names,
                         alone[0] != '\0' ? alone : "they take several ranks, and one was asked for; give --ranks 4");
    find_stages(out, spec);
    find_map(out, spec);
    find_replicas(out, spec, micro_batch);
}
