/* host/plugin/elf.c: bounds-checked ELF reader, see elf.h. Structures are those of the System V ABI, from <elf.h>. */
#include "plugin/elf.h"

#include <elf.h>
#include <stdbool.h>

#if defined(__x86_64__)
#define WEFT_ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define WEFT_ELF_MACHINE EM_AARCH64
#elif defined(__riscv)
#define WEFT_ELF_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define WEFT_ELF_MACHINE EM_PPC64
#else
#error "name this machine's ELF number here"
#endif
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WEFT_ELF_DATA ELFDATA2LSB
#else
#define WEFT_ELF_DATA ELFDATA2MSB
#endif

/* More version needs than any real library has; stops a file with lists that take tiny steps through all its bytes. */
#define MOST_VERSIONS 20000

static const char *machine_name(unsigned machine) {
    switch (machine) {
    case EM_386: return "32-bit x86";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "32-bit ARM";
    case EM_AARCH64: return "AArch64";
    case EM_RISCV: return "RISC-V";
    case EM_PPC64: return "PowerPC 64";
    case EM_S390: return "s390";
    default: return "a machine unknown here";
    }
}

/* Returns whether offset + bytes is within size. */
static bool is_inside(uint64_t offset, uint64_t bytes, uint64_t size) {
    return offset <= size && bytes <= size - offset;
}

const unsigned char *weft_elf_at(const weft_elf *self, uint64_t address, uint64_t size) {
    uint32_t i;
    for (i = 0; i < self->n_loads; i++) {
        const weft_elf_load *load = &self->loads[i];
        if (address >= load->address && address - load->address <= load->bytes &&
            size <= load->bytes - (address - load->address))
            return self->image + load->offset + (address - load->address);
    }
    return NULL;
}

/* Returns a string of .dynstr, or NULL. Its last byte is NUL (checked by read_dynamic). */
static const char *text_at(const weft_elf *self, uint64_t offset) {
    const unsigned char *texts = weft_elf_at(self, self->texts, self->texts_size);
    return texts == NULL || offset >= self->texts_size ? NULL : (const char *)texts + offset;
}

/* Checks the first 64 bytes: a complete shared object of this machine. */
static weft_status read_header(Elf64_Ehdr *out, const unsigned char *image, size_t size, weft_error *err) {
    if (size < 4 || memcmp(image, ELFMAG, SELFMAG) != 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "is not an ELF file, so it is no plugin.");
    if (size < sizeof *out) return weft_error_set(err, WEFT_E_PLUGIN, "is truncated: it ends inside its first header.");
    memcpy(out, image, sizeof *out);
    if (out->e_ident[EI_CLASS] != ELFCLASS64)
        return weft_error_set(err, WEFT_E_PLUGIN, "is a 32-bit file; this host is 64-bit. Build it for this machine.");
    if (out->e_ident[EI_DATA] != WEFT_ELF_DATA)
        return weft_error_set(err, WEFT_E_PLUGIN, "has the other byte order. Build it for this machine.");
    if (out->e_machine != WEFT_ELF_MACHINE)
        return weft_error_set(err, WEFT_E_PLUGIN, "is built for %s; this machine is %s. Build it for this machine.",
                              machine_name(out->e_machine), machine_name(WEFT_ELF_MACHINE));
    if (out->e_type != ET_DYN) return weft_error_set(err, WEFT_E_PLUGIN, "is no shared object; link it with -shared.");
    if (out->e_phentsize != sizeof(Elf64_Phdr) || out->e_phnum == 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "has no program headers that can be read; it is damaged.");
    return WEFT_OK;
}

static weft_status reject_truncated(weft_error *err, uint64_t end, size_t size) {
    return weft_error_set(err, WEFT_E_PLUGIN, "is truncated: its headers describe %llu bytes and it has %llu.",
                          (unsigned long long)end, (unsigned long long)size);
}

static weft_status read_program_headers(weft_elf *out, const Elf64_Ehdr *header, weft_error *err) {
    if (!is_inside(header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize, out->size))
        return reject_truncated(err, header->e_shoff + (uint64_t)header->e_shnum * header->e_shentsize, out->size);
    if (!is_inside(header->e_phoff, (uint64_t)header->e_phnum * sizeof(Elf64_Phdr), out->size))
        return reject_truncated(err, header->e_phoff + (uint64_t)header->e_phnum * sizeof(Elf64_Phdr), out->size);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr program;
        memcpy(&program, out->image + header->e_phoff + i * sizeof program, sizeof program);
        if (program.p_type == PT_DYNAMIC) {
            out->dynamic = program.p_vaddr;
            out->n_dynamic = program.p_memsz / sizeof(Elf64_Dyn);
        }
        if (program.p_type != PT_LOAD) continue;
        if (!is_inside(program.p_offset, program.p_filesz, out->size))
            return reject_truncated(err, program.p_offset + program.p_filesz, out->size);
        if (out->n_loads == WEFT_ELF_LOADS)
            return weft_error_set(err, WEFT_E_PLUGIN, "has more than %d segments to load.", WEFT_ELF_LOADS);
        out->loads[out->n_loads++] = (weft_elf_load){program.p_vaddr, program.p_offset, program.p_filesz};
    }
    return WEFT_OK;
}

/* Copies the n bytes at an address; false: the file does not map them. */
static bool read_at(const weft_elf *self, void *out, uint64_t address, size_t n) {
    const unsigned char *at = weft_elf_at(self, address, n);
    if (at != NULL) memcpy(out, at, n);
    return at != NULL;
}

/* Returns the number of symbols in .dynsym from a GNU hash table: the end of the chain with the highest start. */
static uint64_t count_by_gnu_hash(const weft_elf *self, uint64_t hash) {
    uint32_t head[4], last = 0, word = 0;
    uint64_t buckets = hash + sizeof head, chains = 0;
    if (!read_at(self, head, hash, sizeof head)) return 0; /* buckets, first symbol, bloom words, shift */
    buckets += 8 * (uint64_t)head[2];
    chains = buckets + 4 * (uint64_t)head[0];
    if (weft_elf_at(self, buckets, 4 * (uint64_t)head[0]) == NULL) return 0;
    for (uint32_t i = 0; i < head[0]; i++) {
        (void)read_at(self, &word, buckets + 4 * (uint64_t)i, 4);
        if (word > last) last = word;
    }
    if (last < head[1]) return head[1];
    while (read_at(self, &word, chains + 4 * (uint64_t)(last - head[1]), 4)) {
        if (word & 1u) return (uint64_t)last + 1;
        last++;
    }
    return 0;
}

/* Reads dynamic entry i; false past the end. */
static bool dynamic_entry(const weft_elf *self, Elf64_Dyn *out, uint64_t i) {
    return i < self->n_dynamic && read_at(self, out, self->dynamic + i * sizeof *out, sizeof *out) &&
           out->d_tag != DT_NULL;
}

static weft_status read_dynamic(weft_elf *out, weft_error *err) {
    const unsigned char *texts = NULL;
    uint64_t hash = 0, gnu_hash = 0;
    uint32_t sizes[2] = {0}; /* of the older hash table: buckets and chains, one chain per symbol */
    Elf64_Dyn entry;
    for (uint64_t i = 0; dynamic_entry(out, &entry, i); i++) {
        const uint64_t value = entry.d_un.d_val;
        if (entry.d_tag == DT_SYMTAB) out->symbols = value;
        if (entry.d_tag == DT_STRTAB) out->texts = value;
        if (entry.d_tag == DT_STRSZ) out->texts_size = value;
        if (entry.d_tag == DT_HASH) hash = value;
        if (entry.d_tag == DT_GNU_HASH) gnu_hash = value;
        if (entry.d_tag == DT_VERNEED) out->versions = value;
        if (entry.d_tag == DT_VERNEEDNUM) out->n_versions = value;
    }
    if (gnu_hash == 0) (void)read_at(out, sizes, hash, sizeof sizes);
    out->n_symbols = gnu_hash != 0 ? count_by_gnu_hash(out, gnu_hash) : sizes[1];
    texts = weft_elf_at(out, out->texts, out->texts_size);
    if (out->n_symbols == 0 || weft_elf_at(out, out->symbols, out->n_symbols * sizeof(Elf64_Sym)) == NULL ||
        texts == NULL || out->texts_size == 0 || texts[out->texts_size - 1] != 0) {
        return weft_error_set(err, WEFT_E_PLUGIN, "has no dynamic symbol table that can be read; it is damaged.");
    }
    return WEFT_OK;
}

weft_status weft_elf_open(weft_elf *out, const void *image, size_t size, weft_error *err) {
    Elf64_Ehdr header;
    weft_status status = read_header(&header, image, size, err);
    memset(out, 0, sizeof *out);
    out->image = image;
    out->size = size;
    if (status == WEFT_OK) status = read_program_headers(out, &header, err);
    if (status == WEFT_OK) status = read_dynamic(out, err);
    return status;
}

int weft_elf_export(const weft_elf *self, weft_elf_symbol *out, uint64_t i) {
    Elf64_Sym symbol;
    if (!read_at(self, &symbol, self->symbols + i * sizeof symbol, sizeof symbol)) return -1;
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) return 0;
    if (ELF64_ST_VISIBILITY(symbol.st_other) == STV_HIDDEN || ELF64_ST_VISIBILITY(symbol.st_other) == STV_INTERNAL)
        return 0;
    out->name = text_at(self, symbol.st_name);
    out->address = symbol.st_value;
    out->size = symbol.st_size;
    out->is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
    out->is_object = ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT;
    return out->name == NULL ? -1 : 1;
}

const char *weft_elf_import(const weft_elf *self, uint64_t i) {
    Elf64_Sym symbol;
    if (!read_at(self, &symbol, self->symbols + i * sizeof symbol, sizeof symbol)) return NULL;
    return symbol.st_shndx == SHN_UNDEF ? text_at(self, symbol.st_name) : NULL;
}

const char *weft_elf_text(const weft_elf *self, weft_elf_list list, uint64_t i) {
    static const int64_t tags[][3] = {[WEFT_ELF_NEEDED] = {DT_NEEDED, DT_NEEDED, DT_NEEDED},
                                      [WEFT_ELF_OPENED] = {DT_NEEDED, DT_FILTER, DT_AUXILIARY},
                                      [WEFT_ELF_RUNPATHS] = {DT_RPATH, DT_RUNPATH, DT_RUNPATH}};
    Elf64_Dyn entry;
    for (uint64_t at = 0; dynamic_entry(self, &entry, at); at++)
        if ((entry.d_tag == tags[list][0] || entry.d_tag == tags[list][1] || entry.d_tag == tags[list][2]) && i-- == 0)
            return text_at(self, entry.d_un.d_val);
    return NULL;
}

/* Reads the versions required from one library, a list of Vernaux from `address` on: raises major and minor to its
 * highest "GLIBC_2.36"; other names ("GLIBC_PRIVATE", "GCC_3.0") are ignored. Returns their number; < 0: unreadable. */
static int64_t read_versions_of(const weft_elf *self, uint64_t address, uint32_t count, int *major, int *minor) {
    for (uint32_t i = 0; i < count; i++) {
        Elf64_Vernaux aux;
        const char *name = NULL;
        int a = 0, b = 0;
        if (read_at(self, &aux, address, sizeof aux)) name = text_at(self, aux.vna_name);
        if (name == NULL) return -1;
        if (strncmp(name, "GLIBC_", 6) == 0 && sscanf(name + 6, "%4d.%4d", &a, &b) == 2 &&
            (a > *major || (a == *major && b > *minor))) {
            *major = a;
            *minor = b;
        }
        if (aux.vna_next == 0) return (int64_t)i + 1;
        address += aux.vna_next;
    }
    return count;
}

weft_status weft_elf_glibc(const weft_elf *self, int *major, int *minor, weft_error *err) {
    uint64_t address = self->versions;
    int64_t read = 0;
    *major = 0;
    *minor = 0;
    for (uint64_t i = 0; i < self->n_versions && read >= 0 && read < MOST_VERSIONS; i++) {
        Elf64_Verneed need;
        int64_t more = -1;
        if (read_at(self, &need, address, sizeof need))
            more = read_versions_of(self, address + need.vn_aux, need.vn_cnt, major, minor);
        read = more < 0 ? -1 : read + more + 1;
        if (read < 0 || need.vn_next == 0) break;
        address += need.vn_next;
    }
    if (read < 0 || read >= MOST_VERSIONS)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a list of library versions that cannot be read; it is damaged.");
    return WEFT_OK;
}
