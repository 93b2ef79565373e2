/* host/run/validate_data.c: see validate_data.h. */
#include "run/validate_data.h"

static weft_status judge_lengths(const weft_data_info *info, int64_t max_context, weft_error *err) {
    if (info->n_lengths < 1 || info->n_lengths > WEFT_MAX_LENGTHS)
        return weft_error_set(err, WEFT_E_PLUGIN, "its info declares %d lengths of micro-batches; 1 to %d are possible",
                              (int)info->n_lengths, WEFT_MAX_LENGTHS);
    for (int32_t i = 0; i < info->n_lengths; i++) {
        const int32_t length = info->lengths[i], before = i == 0 ? 0 : info->lengths[i - 1];
        if (length <= before || length > max_context)
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "its info declares a length of %d behind one of %d: lengths rise "
                                  "from at least 1 to at most the model's %lld",
                                  (int)length, (int)before, (long long)max_context);
    }
    return WEFT_OK;
}

static weft_status judge_split(const weft_split_info *info, const char *name, int32_t longest, weft_error *err) {
    const uint64_t most = UINT64_MAX / (uint64_t)longest;
    if (info->rows > most)
        return weft_error_set(err, WEFT_E_PLUGIN, "its split %s has %llu rows, more than can be counted", name,
                              (unsigned long long)info->rows);
    if (info->targets > info->rows * (uint64_t)longest)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "its split %s has %llu rows of at most %d places and %llu targets: "
                              "no place has two",
                              name, (unsigned long long)info->rows, (int)longest, (unsigned long long)info->targets);
    return WEFT_OK;
}

weft_status weft_data_validate(const weft_data_info *info, weft_split_info *const infos[3], int64_t max_context,
                               bool training, weft_error *err) {
    static const char *const names[] = {"training", "validation", "all"};
    weft_status status = judge_lengths(info, max_context, err);
    for (int i = 0; i < 3 && status == WEFT_OK; i++)
        status = judge_split(infos[i], names[i], info->lengths[info->n_lengths - 1], err);
    if (status == WEFT_OK && training && infos[WEFT_SPLIT_TRAIN]->rows == 0)
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "its split training has no rows, and answers WEFT_OK for a run that "
                                "trains");
    return status;
}
