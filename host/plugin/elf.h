/* host/plugin/elf.h: reads what the dynamic loader would read from a shared object, without running it.
 *
 * Works on the file's bytes in memory and trusts none of them: every offset is checked against the size. It follows
 * program headers and the dynamic section, as the loader does; section headers, which a strip may remove, are only used
 * to notice a truncated file. 64-bit files of this machine alone. Errors are WEFT_E_PLUGIN and name no file: the caller
 * knows it.
 */
#ifndef WEFT_HOST_PLUGIN_ELF_H
#define WEFT_HOST_PLUGIN_ELF_H

#include <weft/base.h>

#define WEFT_ELF_LOADS 32

typedef struct weft_elf_load {
    uint64_t address, offset, bytes; /* what lies in the file; zeros behind it do not */
} weft_elf_load;

typedef struct weft_elf {
    const unsigned char *image;
    size_t size;
    weft_elf_load loads[WEFT_ELF_LOADS];
    uint32_t n_loads;
    uint64_t symbols, n_symbols; /* .dynsym: address, count */
    uint64_t texts, texts_size;  /* .dynstr */
    uint64_t dynamic, n_dynamic;
    uint64_t versions, n_versions; /* .gnu.version_r; 0: none */
} weft_elf;

typedef struct weft_elf_symbol {
    const char *name;
    uint64_t address, size;
    int is_function, is_object;
} weft_elf_symbol;

/* The image stays the caller's and must outlive out. [any-thread] */
weft_status weft_elf_open(weft_elf *out, const void *image, size_t size, weft_error *err);

/* The bytes that the file puts at [address, address + size), or NULL. [any-thread] */
const unsigned char *weft_elf_at(const weft_elf *self, uint64_t address, uint64_t size);

/* Symbol i of n_symbols, if it is defined and visible to others: 1; an import or a local one: 0; < 0: it cannot be
 * read. [any-thread] */
int weft_elf_export(const weft_elf *self, weft_elf_symbol *out, uint64_t i);

/* The name of symbol i if it is to come from elsewhere, else NULL. [any-thread] */
const char *weft_elf_import(const weft_elf *self, uint64_t i);

/* Name i of the libraries that it needs; NULL past the end. [any-thread] */
const char *weft_elf_needed(const weft_elf *self, uint64_t i);

/* Name i of the libraries that the loader opens with it (DT_NEEDED, DT_FILTER, DT_AUXILIARY), and directory list i of
 * those that it searches for them first (DT_RPATH, DT_RUNPATH); NULL past the end. [any-thread] */
const char *weft_elf_opened(const weft_elf *self, uint64_t i);
const char *weft_elf_runpath(const weft_elf *self, uint64_t i);

/* The highest GLIBC_<major>.<minor> that it asks for; 0 and 0 if none. [any-thread] */
weft_status weft_elf_glibc(const weft_elf *self, int *major, int *minor, weft_error *err);

#endif
