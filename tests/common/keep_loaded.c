/* tests/common/keep_loaded.c: linked to programs under the sanitizers, in place of the C library's dlclose.
 *
 * A leak is looked for when the process ends, and named by the library that it came from. Open MPI has unloaded its own
 * by then, so that leaks.txt could not name them. Weft unloads nothing. */
int dlclose(void *file);

int dlclose(void *file) {
    (void)file;
    return 0;
}
