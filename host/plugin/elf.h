/* host/plugin/elf.h: reads the parts of a shared object that the dynamic loader reads, without running it.
 *
 * Works on the file's bytes in memory and validates every offset against the size. It follows program headers and the
 * dynamic section, as the loader does. Section headers, which a strip may remove, only serve to detect a truncated
 * file. Only 64-bit files of this machine are supported. Errors are WEFT_E_PLUGIN without the file's name, which the
 * caller adds. */
#ifndef WEFT_HOST_PLUGIN_ELF_H
#define WEFT_HOST_PLUGIN_ELF_H

#include <weft/base.h>

#define WEFT_ELF_LOADS 32

typedef struct weft_elf_load {
    uint64_t address, offset, bytes; /* the bytes in the file, without the zeros that follow */
} weft_elf_load;

typedef struct weft_elf {
    const unsigned char *image;
    size_t size;
    weft_elf_load loads[WEFT_ELF_LOADS];
    uint32_t n_loads;
    uint64_t symbols, n_symbols; /* .dynsym: address, count */
    uint64_t texts, texts_size;  /* .dynstr */
    uint64_t dynamic, n_dynamic;
    uint64_t versions, n_versions; /* .gnu.version_r; 0: missing */
} weft_elf;

typedef struct weft_elf_symbol {
    const char *name;
    uint64_t address, size;
    int is_function, is_object;
} weft_elf_symbol;

/* Opens an image. The caller keeps the image, which must outlive out. [any-thread] */
weft_status weft_elf_open(weft_elf *out, const void *image, size_t size, weft_error *err);

/* Returns the bytes that the file maps at [address, address + size), or NULL. [any-thread] */
const unsigned char *weft_elf_at(const weft_elf *self, uint64_t address, uint64_t size);

/* Reads symbol i of n_symbols. Returns 1 if it is defined and exported, 0 for an import or a local symbol, < 0 if it
 * cannot be read. [any-thread] */
int weft_elf_export(const weft_elf *self, weft_elf_symbol *out, uint64_t i);

/* Returns the name of symbol i if it is an import, else NULL. [any-thread] */
const char *weft_elf_import(const weft_elf *self, uint64_t i);

typedef enum weft_elf_list {
    WEFT_ELF_NEEDED,  /* libraries that it needs */
    WEFT_ELF_OPENED,  /* those that the loader opens with it: DT_NEEDED, DT_FILTER, DT_AUXILIARY */
    WEFT_ELF_RUNPATHS /* directory lists that the loader searches first: DT_RPATH, DT_RUNPATH */
} weft_elf_list;

/* Returns text i of a list; NULL past the end. [any-thread] */
const char *weft_elf_text(const weft_elf *self, weft_elf_list list, uint64_t i);

/* Returns the highest GLIBC_<major>.<minor> that it requires; 0 and 0 if there is no such requirement. [any-thread] */
weft_status weft_elf_glibc(const weft_elf *self, int *major, int *minor, weft_error *err);

#endif
