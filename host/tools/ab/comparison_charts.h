/* host/tools/ab/comparison_charts.h: the drawings of the page (comparison_page.h): blocks, ratios, what they told at
 * each look, exchanges and what is learned. Nothing where nothing was measured. */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_CHARTS_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_CHARTS_H

#include "tools/ab/experiment.h"

#include <stdio.h>

void weft_ab_print_charts(const weft_ab_experiment *experiment, FILE *to);

#endif
