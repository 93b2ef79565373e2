/* host/tools/report/page_sections.h: the sections of a page. Each is left out where there is nothing to tell. */
#ifndef WEFT_HOST_TOOLS_REPORT_PAGE_SECTIONS_H
#define WEFT_HOST_TOOLS_REPORT_PAGE_SECTIONS_H

#include "tools/report/comparison.h"

void weft_section_tiles(const weft_digest *digest, FILE *to); /* the five numbers that matter */
void weft_section_notes(const weft_comparison *runs, FILE *to);
void weft_section_scaling(const weft_comparison *runs, FILE *to);
void weft_section_differences(const weft_comparison *runs, FILE *to);
void weft_section_charts(const weft_comparison *runs, FILE *to); /* chart_section.c */
void weft_section_memory(const weft_comparison *runs, FILE *to); /* bar_sections.c */
void weft_section_time(const weft_comparison *runs, FILE *to);
void weft_section_ranks(const weft_past_run *run, FILE *to);
void weft_section_saves(const weft_past_run *run, FILE *to);
void weft_section_config(const weft_past_run *run, FILE *to); /* run_sections.c */
void weft_section_starts(const weft_past_run *run, FILE *to);

#endif
