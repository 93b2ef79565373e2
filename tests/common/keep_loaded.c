/* tests/common/keep_loaded.c: replaces the C library's dlclose in programs built with sanitizers.
 *
 * LeakSanitizer reports leaks at exit, with the library that allocated. Open MPI has unloaded its own libraries by
 * then, so leaks.txt could not name them. Weft never unloads. */
int dlclose(void *file);

int dlclose(void *file) {
    (void)file;
    return 0;
}
