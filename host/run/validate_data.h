/* host/run/validate_data.h: what a data plugin says of itself, before anything is planned for it. */
#ifndef WEFT_HOST_RUN_VALIDATE_DATA_H
#define WEFT_HOST_RUN_VALIDATE_DATA_H

#include <stdbool.h>
#include <weft/data.h>

/* Lengths that rise from at least 1 to at most max_context; of each split targets that its rows have room for.
 * training: the first split has rows. infos: by weft_split. [any-thread] */
weft_status weft_data_validate(const weft_data_info *info, weft_split_info *const infos[3], int64_t max_context,
                               bool training, weft_error *err);

#endif
