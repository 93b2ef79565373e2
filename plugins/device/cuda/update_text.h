/* update_text.h: how the kernel of an update begins, whatever it stores: its block of elements, the step's numbers, and
 * the first of the ranges that the block meets. */
#ifndef WEFT_CUDA_UPDATE_TEXT_H
#define WEFT_CUDA_UPDATE_TEXT_H

/* clang-format off */
#define UPDATE_BEGINS \
    "extern \"C\" __global__ void __launch_bounds__(WEFT_THREADS)\n" \
    "weft_update(const weft_region r, const weft_hp *hp_at, const char *ranges, weft_long stride, " \
    "weft_long n_ranges,\n" \
    "            weft_long n, const float *coefficient_at, const int *skip) {\n" \
    "    const weft_long begin = (weft_long)blockIdx.x * WEFT_BLOCK;\n" \
    "    const weft_long end = begin + WEFT_BLOCK < n ? begin + WEFT_BLOCK : n;\n" \
    "    weft_long low = 0, high = n_ranges;\n" \
    "    if (*skip != 0) return;\n" \
    "    const weft_hp hp = *hp_at;\n" \
    "    const float coefficient = *coefficient_at;\n" \
    "    while (low < high) {\n" \
    "        const weft_long middle = low + (high - low) / 2;\n" \
    "        const weft_range *at = (const weft_range *)(ranges + middle * stride);\n" \
    "        if (at->offset + at->length > begin) high = middle;\n" \
    "        else low = middle + 1;\n" \
    "    }\n"
/* clang-format on */

#endif
