/* loops_base.c: the inner loops for any machine. */
#define LOOPS_TABLE cpu_loops_base
#include "loops_body.h"
