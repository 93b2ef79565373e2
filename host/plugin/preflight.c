/* host/plugin/preflight.c: see load.h. The ELF reader works on the file's bytes in memory and checks every offset; its
 * structures are those of the System V ABI. It follows program headers and the dynamic section, as the loader does.
 * Section headers, which a strip may remove, only serve to detect a truncated file. The note is lines of key=value; its
 * first line names the format. */
#include "plugin/load.h"

#include "base/text.h"

#include <ctype.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <weft/comm.h>

#define NOTE_NAME   "weft_plugin_note"
#define ENTRY_NAME  "weft_plugin_entry"
#define NOTE_FORMAT "weft-plugin/1"
#define MOST_LOADS  32

/* ---- the file ---- */

#if defined(__x86_64__)
#define WEFT_ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define WEFT_ELF_MACHINE EM_AARCH64
#else
#error "name this machine's ELF number here"
#endif

typedef struct elf_load {
    uint64_t address, offset, bytes; /* the bytes in the file, without the zeros that follow */
} elf_load;

/* The parts of a shared object that the dynamic loader reads. */
typedef struct elf_file {
    const unsigned char *image;
    size_t size;
    elf_load loads[MOST_LOADS];
    uint32_t n_loads;
    uint64_t symbols, n_symbols; /* .dynsym: address, count */
    uint64_t texts, texts_size;  /* .dynstr */
    uint64_t dynamic, n_dynamic;
} elf_file;

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

/* Returns the bytes that the file maps at [address, address + size), or NULL. */
static const unsigned char *bytes_at(const elf_file *self, uint64_t address, uint64_t size) {
    for (uint32_t i = 0; i < self->n_loads; i++) {
        const elf_load *load = &self->loads[i];
        if (address >= load->address && address - load->address <= load->bytes &&
            size <= load->bytes - (address - load->address))
            return self->image + load->offset + (address - load->address);
    }
    return NULL;
}

/* Returns a string of .dynstr, or NULL. Its last byte is NUL (checked by read_dynamic). */
static const char *text_at(const elf_file *self, uint64_t offset) {
    const unsigned char *texts = bytes_at(self, self->texts, self->texts_size);
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
    if (out->e_ident[EI_DATA] != ELFDATA2LSB)
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

static weft_status read_program_headers(elf_file *out, const Elf64_Ehdr *header, weft_error *err) {
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
        if (out->n_loads == MOST_LOADS)
            return weft_error_set(err, WEFT_E_PLUGIN, "has more than %d segments to load.", MOST_LOADS);
        out->loads[out->n_loads++] = (elf_load){program.p_vaddr, program.p_offset, program.p_filesz};
    }
    return WEFT_OK;
}

/* Copies the n bytes at an address; false: the file does not map them. */
static bool read_at(const elf_file *self, void *out, uint64_t address, size_t n) {
    const unsigned char *at = bytes_at(self, address, n);
    if (at != NULL) memcpy(out, at, n);
    return at != NULL;
}

/* Returns the number of symbols in .dynsym from a GNU hash table: the end of the chain with the highest start. */
static uint64_t count_by_gnu_hash(const elf_file *self, uint64_t hash) {
    uint32_t head[4], last = 0, word = 0;
    uint64_t buckets = hash + sizeof head, chains = 0;
    if (!read_at(self, head, hash, sizeof head)) return 0; /* buckets, first symbol, bloom words, shift */
    buckets += 8 * (uint64_t)head[2];
    chains = buckets + 4 * (uint64_t)head[0];
    if (bytes_at(self, buckets, 4 * (uint64_t)head[0]) == NULL) return 0;
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

/* Reads symbol i < n_symbols and its name; a name that cannot be read is NULL. */
static Elf64_Sym symbol_at(const elf_file *self, const char **name, uint64_t i) {
    Elf64_Sym out = {0};
    (void)read_at(self, &out, self->symbols + i * sizeof out, sizeof out);
    *name = text_at(self, out.st_name);
    return out;
}

/* Reads dynamic entry i; false past the end. */
static bool dynamic_entry(const elf_file *self, Elf64_Dyn *out, uint64_t i) {
    return i < self->n_dynamic && read_at(self, out, self->dynamic + i * sizeof *out, sizeof *out) &&
           out->d_tag != DT_NULL;
}

static weft_status read_dynamic(elf_file *out, weft_error *err) {
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
    }
    if (gnu_hash == 0) (void)read_at(out, sizes, hash, sizeof sizes);
    out->n_symbols = gnu_hash != 0 ? count_by_gnu_hash(out, gnu_hash) : sizes[1];
    texts = bytes_at(out, out->texts, out->texts_size);
    if (out->n_symbols == 0 || bytes_at(out, out->symbols, out->n_symbols * sizeof(Elf64_Sym)) == NULL ||
        texts == NULL || out->texts_size == 0 || texts[out->texts_size - 1] != 0) {
        return weft_error_set(err, WEFT_E_PLUGIN, "has no dynamic symbol table that can be read; it is damaged.");
    }
    return WEFT_OK;
}

/* ---- exports, imports and note ---- */

/* Finds the two exports; rejects a third one by name. */
static weft_status find_exports(const elf_file *elf, Elf64_Sym *note, weft_error *err) {
    bool has_note = false, has_entry = false;
    for (uint64_t i = 1; i < elf->n_symbols; i++) { /* 0 is the empty symbol */
        const char *name = NULL;
        const Elf64_Sym symbol = symbol_at(elf, &name, i);
        const int visibility = ELF64_ST_VISIBILITY(symbol.st_other), type = ELF64_ST_TYPE(symbol.st_info);
        if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || visibility == STV_HIDDEN ||
            visibility == STV_INTERNAL)
            continue;
        if (name == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "has a symbol without a name; it is damaged.");
        if (strcmp(name, NOTE_NAME) == 0 && type == STT_OBJECT) {
            *note = symbol;
            has_note = true;
        } else if (strcmp(name, ENTRY_NAME) == 0 && type == STT_FUNC) {
            has_entry = true;
        } else {
            return weft_error_set(err, WEFT_E_PLUGIN,
                                  "exports %.200s; a plugin exports " NOTE_NAME " (a char array) and " ENTRY_NAME
                                  " (a function) only. Build it with weft_add_plugin or the flags of "
                                  "weft.pc, which hide the rest.",
                                  name);
        }
    }
    if (!has_note && !has_entry)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "is a shared object without " NOTE_NAME " and " ENTRY_NAME ", so it is no Weft plugin.");
    if (has_note && has_entry) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "lacks the export %s. WEFT_PLUGIN defines it; the SDK's linker flags keep it visible.",
                          has_note ? ENTRY_NAME : NOTE_NAME);
}

/* Rejects imports that end or replace the process silently. exit is detected when it happens (crash.h), and abort is
 * reported as a crash. */
static weft_status check_imports(const elf_file *elf, weft_error *err) {
    static const char *const ends[] = {"_exit", "_Exit",  "quick_exit", "execl",   "execle",   "execlp",
                                       "execv", "execve", "execvp",     "execvpe", "execveat", "fexecve"};
    for (uint64_t i = 1; i < elf->n_symbols; i++) {
        const char *name = NULL;
        const bool is_import = symbol_at(elf, &name, i).st_shndx == SHN_UNDEF;
        for (size_t k = 0; is_import && name != NULL && k < sizeof ends / sizeof *ends; k++)
            if (strcmp(name, ends[k]) == 0)
                return weft_error_set(err, WEFT_E_PLUGIN,
                                      "calls %s, which would end the process without a message. A plugin returns an "
                                      "error instead%s.",
                                      name, strstr(name, "exec") != NULL ? ", and starts no program" : "");
    }
    return WEFT_OK;
}

/* Copies the note's text from the file. */
static weft_status read_note(weft_preflight *out, const elf_file *elf, const Elf64_Sym *symbol, weft_error *err) {
    const unsigned char *text = bytes_at(elf, symbol->st_value, symbol->st_size);
    const size_t n = (size_t)symbol->st_size;
    if (text == NULL || n == 0 || n > sizeof out->note || text[n - 1] != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a " NOTE_NAME
                              " that cannot be read: it must be a constant text of less than %zu bytes.",
                              sizeof out->note);
    for (size_t i = 0; i + 1 < n; i++) {
        if (text[i] != '\n' && (text[i] < 32 || text[i] > 126))
            return weft_error_set(err, WEFT_E_PLUGIN, "has a " NOTE_NAME " with bytes that are no plain text.");
    }
    memcpy(out->note, text, n);
    return WEFT_OK;
}

/* Parses "1000" -> 1000. Returns false for an invalid SDK number. */
static int parse_sdk(uint32_t *out, const char *text) {
    char *end = NULL;
    const unsigned long value = isdigit((unsigned char)text[0]) ? strtoul(text, &end, 10) : 0;
    if (value < 1000 || value > 999999 || end == NULL || *end != 0) return 0;
    *out = (uint32_t)value;
    return 1;
}

/* Parses "optimizer/1 lion 0.1.0". */
static weft_status parse_plugin(weft_preflight *out, const char *text, weft_error *err) {
    weft_note_plugin *plugin = &out->plugins[out->n_plugins];
    int end = 0;
    if (out->n_plugins == WEFT_FILE_PLUGINS)
        return weft_error_set(err, WEFT_E_PLUGIN, "has a note with more than %d plugins.", WEFT_FILE_PLUGINS);
    if (sscanf(text, "%15[a-z0-9_]/%4u %63[a-z0-9_-] %31[!-~]%n", plugin->kind, &plugin->interface_major, plugin->id,
               plugin->version, &end) != 4 ||
        text[end] != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"plugin=%.100s\" is not <kind>/<interface> <id> <version>, with "
                              "an id of [a-z0-9_-].",
                              text);
    out->n_plugins++;
    return WEFT_OK;
}

/* Parses "/usr/bin/mpiexec -n {ranks}": an absolute program, and {ranks} once among its words; or "weft {ranks}"; or
 * "as mpi-mpich". */
static weft_status parse_launch(weft_preflight *out, const char *text, weft_error *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-", as[] = WEFT_LAUNCH_AS;
    const char *ranks = strstr(text, "{ranks}");
    const char *other = strncmp(text, as, sizeof as - 1) == 0 ? text + sizeof as - 1 : "";
    const bool is_command = (text[0] == '/' || strcmp(text, WEFT_LAUNCH_BY_HOST) == 0) && ranks != NULL &&
                            strstr(ranks + 1, "{ranks}") == NULL;
    if (out->launch[0] != 0 || (!is_command && (*other == 0 || other[strspn(other, letters)] != 0)))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"launch=%.200s\" is not the one command that starts ranks: an "
                              "absolute path, and {ranks} once among what follows it, or \"" WEFT_LAUNCH_BY_HOST
                              "\", or \"" WEFT_LAUNCH_AS "\" and another's id.",
                              text);
    (void)snprintf(out->launch, sizeof out->launch, "%s", text);
    return WEFT_OK;
}

/* Parses "PMI_RANK PMI_SIZE": pairs of names separated by one space. */
static weft_status parse_launched(weft_preflight *out, const char *text, weft_error *err) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    int names = 0;
    bool good = out->launched[0] == 0, has_more = true;
    for (const char *at = text; good && has_more; names++) {
        const size_t n = strspn(at, letters);
        good = n > 0 && !isdigit((unsigned char)at[0]) && (at[n] == ' ' || at[n] == 0);
        has_more = at[n] == ' ';
        at += n + 1;
    }
    if (!good || names % 2 != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"launched=%.200s\" is not a single list of pairs of environment "
                              "variables, rank and size, in capitals, separated by one space.",
                              text);
    (void)snprintf(out->launched, sizeof out->launched, "%s", text);
    return WEFT_OK;
}

static weft_status parse_line(weft_preflight *out, const char *line, weft_error *err) {
    int good = 1;
    if (strcmp(line, "math=fast") == 0) out->fast_math = 1;
    if (strncmp(line, "plugin=", 7) == 0) return parse_plugin(out, line + 7, err);
    if (strncmp(line, "launch=", 7) == 0) return parse_launch(out, line + 7, err);
    if (strncmp(line, "launched=", 9) == 0) return parse_launched(out, line + 9, err);
    if (strncmp(line, "sdk=", 4) == 0) good = parse_sdk(&out->sdk, line + 4);
    if (strncmp(line, "min_sdk=", 8) == 0) good = parse_sdk(&out->min_sdk, line + 8);
    if (!good)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "has a note whose line \"%.100s\" names no SDK (major * 1000 + minor, such as 1000).",
                              line);
    return WEFT_OK; /* keys of a later SDK are ignored */
}

weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err) {
    weft_status status = WEFT_OK;
    const char *at = note;
    int first = 1;
    out->sdk = out->min_sdk = out->n_plugins = 0;
    out->launch[0] = out->launched[0] = 0;
    while (*at != 0 && status == WEFT_OK) {
        char line[WEFT_NOTE_LINE];
        const size_t n = strcspn(at, "\n");
        if (n >= sizeof line) return weft_error_set(err, WEFT_E_PLUGIN, "has a note with a line that is too long.");
        memcpy(line, at, n);
        line[n] = 0;
        if (first && strcmp(line, NOTE_FORMAT) != 0) {
            return weft_error_set(err, WEFT_E_PLUGIN, "has a note that starts with \"%.100s\"; this host reads %s.",
                                  line, NOTE_FORMAT);
        }
        if (!first) status = parse_line(out, line, err);
        first = 0;
        at += at[n] == '\n' ? n + 1 : n;
    }
    if (status == WEFT_OK && (out->sdk == 0 || out->min_sdk == 0 || out->n_plugins == 0)) {
        status = weft_error_set(err, WEFT_E_PLUGIN, "has a note without its %s line.",
                                out->sdk == 0       ? "sdk="
                                : out->min_sdk == 0 ? "min_sdk="
                                                    : "plugin=");
    }
    return status;
}

/* Finds the highest "GLIBC_2.36" that is needed; the names of versions are in .dynstr. 0 and 0: none. */
static void find_glibc(const elf_file *elf, int *major, int *minor) {
    const char *at = text_at(elf, 0), *end = at + elf->texts_size;
    while ((at = memmem(at, (size_t)(end - at), "GLIBC_", 6)) != NULL) {
        int a = 0, b = 0;
        at += 6;
        if (sscanf(at, "%4d.%4d", &a, &b) != 2 || a < *major || (a == *major && b <= *minor)) continue;
        *major = a;
        *minor = b;
    }
}

static weft_status check_versions(const weft_preflight *note, const elf_file *elf, weft_error *err) {
    const unsigned host = WEFT_SDK_HEADERS;
    const char *here = gnu_get_libc_version();
    int major = 0, minor = 0, needed_major = 0, needed_minor = 0;
    weft_status status = WEFT_OK;
    if (note->sdk / 1000 != host / 1000)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "is built for SDK %u, and this host has SDK %u.%u. Build it with this host's headers.",
                              note->sdk / 1000, host / 1000, host % 1000);
    if (note->min_sdk > host)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "needs at least SDK %u.%u, and this host has SDK %u.%u. Install a newer host.",
                              note->min_sdk / 1000, note->min_sdk % 1000, host / 1000, host % 1000);
    for (uint32_t i = 0; status == WEFT_OK && i < note->n_plugins; i++) status = weft_kind_fits(&note->plugins[i], err);
    if (status == WEFT_OK) status = check_imports(elf, err);
    find_glibc(elf, &needed_major, &needed_minor);
    if (status != WEFT_OK || sscanf(here, "%4d.%4d", &major, &minor) != 2) return status;
    if (needed_major > major || (needed_major == major && needed_minor > minor))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "needs GLIBC_%d.%d, and this system has %s. Build it on a system as old as this one.",
                              needed_major, needed_minor, here);
    return WEFT_OK;
}

weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err) {
    elf_file elf = {.image = image, .size = size};
    Elf64_Ehdr header;
    Elf64_Sym note = {0};
    Elf64_Dyn entry;
    weft_status status = read_header(&header, image, size, err);
    if (status == WEFT_OK) status = read_program_headers(&elf, &header, err);
    if (status == WEFT_OK) status = read_dynamic(&elf, err);
    if (status == WEFT_OK) status = find_exports(&elf, &note, err);
    if (status == WEFT_OK) status = read_note(out, &elf, &note, err);
    if (status == WEFT_OK) status = weft_note_parse(out, out->note, err);
    if (status == WEFT_OK) status = check_versions(out, &elf, err);
    out->needed[0] = 0;
    for (uint64_t i = 0; status == WEFT_OK && dynamic_entry(&elf, &entry, i); i++) {
        const char *name = entry.d_tag == DT_NEEDED ? text_at(&elf, entry.d_un.d_val) : NULL;
        if (name != NULL)
            weft_words_append(out->needed, sizeof out->needed, "%s%s", out->needed[0] == 0 ? "" : ", ", name);
    }
    return status;
}
