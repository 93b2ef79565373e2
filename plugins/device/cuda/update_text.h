/* update_text.h: start of every generated update kernel: the block's region and elements, the step's numbers and the
 * first overlapping range. The text follows the definition of `weft_region`. Launch bounds allow 64 registers per
 * thread; the compiler's own choice spills when a thread updates four elements. */
#ifndef WEFT_CUDA_UPDATE_TEXT_H
#define WEFT_CUDA_UPDATE_TEXT_H

/* clang-format off */
#define UPDATE_BEGINS \
    "struct weft_row { weft_region at; const char *ranges; weft_long n_ranges, n; unsigned stride, first; };\n" \
    "struct weft_table { weft_row rows[WEFT_ROWS]; };\n" \
    "extern \"C\" __global__ void __launch_bounds__(WEFT_THREADS, 4)\n" \
    "weft_update(const __grid_constant__ weft_table table, const int n_rows, const weft_hp *hp_at,\n" \
    "            const float *coefficient_at, const int *skip) {\n" \
    "    int mine = 0, behind = n_rows;\n" \
    "    if (*skip != 0) return;\n" \
    "    const weft_hp hp = *hp_at;\n" \
    "    const float coefficient = *coefficient_at;\n" \
    "    while (behind - mine > 1) {\n" \
    "        const int middle = (mine + behind) / 2;\n" \
    "        if (table.rows[middle].first > blockIdx.x) behind = middle;\n" \
    "        else mine = middle;\n" \
    "    }\n" \
    "    const weft_region &r = table.rows[mine].at;\n" \
    "    const char *ranges = table.rows[mine].ranges;\n" \
    "    const weft_long n_ranges = table.rows[mine].n_ranges, n = table.rows[mine].n;\n" \
    "    const weft_long stride = table.rows[mine].stride;\n" \
    "    const weft_long begin = (weft_long)(blockIdx.x - table.rows[mine].first) * WEFT_BLOCK;\n" \
    "    const weft_long end = begin + WEFT_BLOCK < n ? begin + WEFT_BLOCK : n;\n" \
    "    weft_long low = 0, high = n_ranges;\n" \
    "    while (low < high) {\n" \
    "        const weft_long middle = low + (high - low) / 2;\n" \
    "        const weft_range *at = (const weft_range *)(ranges + middle * stride);\n" \
    "        if (at->offset + at->length > begin) high = middle;\n" \
    "        else low = middle + 1;\n" \
    "    }\n"
/* clang-format on */

#endif
