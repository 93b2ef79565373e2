/* plain_panels.c: the panels of AMX over tiles in plain C, beside those over the processor's. */
#define WEFT_AMX_PLAIN      "plain.h"
#define cpu_panels_bf16_amx plain_panels
#include "panels_amx.c"
