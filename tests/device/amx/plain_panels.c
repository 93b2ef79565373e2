/* plain_panels.c: the AMX panels over tiles in plain C, in addition to the processor's. */
#define WEFT_AMX_PLAIN      "plain.h"
#define cpu_panels_bf16_amx plain_panels
#include "panels_amx.c"
