/* Writes the file RAN when it is loaded. FUNCTION: a function that it has. CALLS: a function that it needs. */
#include <stdio.h>

__attribute__((constructor)) static void leave(void) {
    FILE *file = fopen(RAN, "w");
    if (file != NULL) (void)fclose(file);
}

#ifdef CALLS
int CALLS(void);
__attribute__((used)) static int call(void) {
    return CALLS();
}
#endif

#ifdef FUNCTION
int FUNCTION(void);
int FUNCTION(void) {
    return 1;
}
#endif
