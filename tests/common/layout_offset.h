/* tests/common/layout_offset.h: the place of a parameter in a flat region that one rank stores completely. */
#ifndef WEFT_TESTS_COMMON_LAYOUT_OFFSET_H
#define WEFT_TESTS_COMMON_LAYOUT_OFFSET_H

#include "model/layout.h"

/* Returns the byte offset of a parameter in the flat region. */
static inline int64_t layout_offset(const weft_layout *layout, const weft_parameter *parameter) {
    const weft_group *group = &layout->groups[parameter->group];
    return group->base + weft_dtype_span(group->dtype, parameter->offset);
}

#endif
