/* nvrtc.cpp: device code compiled at run time, by the host's compiler against the emulator's headers. The "cubin" is a
 * shared object after a short header; driver.cpp loads it. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <cerrno>
#include <regex>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator.h"
#include "module.h"
#include "nvrtc.h"

using namespace weft_emulator;

#define BUILTINS "libnvrtc-builtins.so.13." EMULATOR_NVRTC_MINOR /* 900 + MODULE_VERSION */

struct _nvrtcProgram {
    std::string source, name, log;
    std::vector<char> image;
};

namespace {

#define RTC_CALL(name)                                                                                                 \
    const std::lock_guard<Lock> lock(lock_of_all());                                                                   \
    const int planted_code = planted(name);                                                                            \
    if (planted_code != 0) return static_cast<nvrtcResult>(planted_code)

/* A temporary directory, removed with its contents. */
struct Scratch {
    char path[64] = "/tmp/weft-emulator-XXXXXX";
    Scratch() {
        if (mkdtemp(path) == nullptr) fault("no directory in /tmp for code that is compiled");
    }
    ~Scratch() {
        for (const char *name : {"/code.cpp", "/code.o", "/code.so", "/log"})
            (void)unlink((path + std::string(name)).c_str());
        (void)rmdir(path);
    }
    std::string at(const char *name) const {
        return path + std::string("/") + name;
    }
};

std::vector<char> read_file(const std::string &path) {
    std::vector<char> out;
    FILE *file = fopen(path.c_str(), "rb");
    char buffer[4096];
    if (file == nullptr) return out;
    for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) out.insert(out.end(), buffer, buffer + n);
    (void)fclose(file);
    return out;
}

/* Writes the source, followed by an entry for each extern "C" kernel. */
void write_source(const std::string &path, const _nvrtcProgram &program) {
    static const std::regex kernel(
        "extern\\s+\"C\"\\s+__global__\\s+void\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?(\\w+)\\s*\\(");
    std::string text = "#include <emulator_module.h>\n#line 1 \"" + program.name + "\"\n" + program.source + "\n";
    for (std::sregex_iterator it(program.source.begin(), program.source.end(), kernel), end; it != end; ++it)
        text += "EMULATOR_ENTRY(" + (*it)[1].str() + ");\n";
    FILE *file = fopen(path.c_str(), "wb");
    if (file == nullptr || fwrite(text.data(), 1, text.size(), file) != text.size() || fclose(file) != 0)
        fault("%s cannot be written", path.c_str());
}

/* Returns the path of this library, which compiled code links. */
std::string own_path() {
    Dl_info info;
    if (dladdr(reinterpret_cast<void *>(&write_source), &info) == 0) fault("the emulator does not find itself");
    return info.dli_fname;
}

/* Returns true on success. Both outputs go to the log. */
bool compile(const Scratch &scratch, const std::vector<std::string> &words) {
    std::vector<char *> arguments;
    int status = 0;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child < 0) fault("the compiler cannot be started");
    if (child == 0) {
        const int log = open(scratch.at("log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        (void)dup2(log, STDOUT_FILENO);
        (void)dup2(log, STDERR_FILENO);
        (void)unsetenv("LD_PRELOAD");
        (void)execvp(arguments[0], arguments.data());
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* NVRTC options with an effect here; unknown options are rejected. */
bool takes(const std::string &option) {
    for (const char *known : {"--gpu-architecture=", "-arch=", "--fmad=", "-fmad=", "--std=", "-std=",
                              "-default-device", "--device-as-default-execution-space", "-D", "--define-macro="})
        if (option.compare(0, strlen(known), known) == 0) return true;
    return false;
}

} // namespace

EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
    return "an unknown result";
}

/* An impossible version, so that code compiled here is never taken for real code. */
EXPORT nvrtcResult nvrtcVersion(int *major, int *minor) {
    RTC_CALL("nvrtcVersion");
    *major = 13;
    *minor = atoi(EMULATOR_NVRTC_MINOR);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *source, const char *name, int n_headers,
                                      const char *const *, const char *const *) {
    RTC_CALL("nvrtcCreateProgram");
    if (source == nullptr || n_headers != 0) return NVRTC_ERROR_INVALID_INPUT;
    *out = new _nvrtcProgram{source, name == nullptr ? "default_program" : name, "", {}};
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) {
    RTC_CALL("nvrtcDestroyProgram");
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int n_options, const char *const *options) {
    RTC_CALL("nvrtcCompileProgram");
    const Scratch scratch;
    std::vector<std::string> words = {EMULATOR_CXX,
                                      "-std=c++17",
                                      "-O2",
                                      "-c",
                                      "-fPIC",
                                      "-ffp-contract=off",
                                      "-fno-math-errno",
                                      "-fno-strict-aliasing",
                                      "-fvisibility=hidden",
                                      "-I" EMULATOR_INCLUDE,
                                      "-o",
                                      scratch.at("code.o"),
                                      scratch.at("code.cpp")};
    if (bytes_are_counted())
        words.insert(words.end(), {"-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"});
    for (int i = 0; i < n_options; i++) {
        if (!takes(options[i])) return NVRTC_ERROR_INVALID_OPTION;
        if (strncmp(options[i], "-D", 2) == 0) words.push_back(options[i]);
    }
    /* The real NVRTC would also search the loader's paths, which a toolkit elsewhere is not in. */
    if (dlopen(BUILTINS, RTLD_NOW | RTLD_NOLOAD) == nullptr) {
        program->log = "nvrtc: error: failed to open " BUILTINS ".";
        return NVRTC_ERROR_BUILTIN_OPERATION_FAILURE;
    }
    write_source(scratch.at("code.cpp"), *program);
    const bool compiled =
        compile(scratch, words) &&
        compile(scratch, {EMULATOR_CXX, "-shared", "-o", scratch.at("code.so"), scratch.at("code.o"), own_path()});
    const std::vector<char> log = read_file(scratch.at("log"));
    program->log.assign(log.begin(), log.end());
    if (!compiled) return NVRTC_ERROR_COMPILATION;
    program->image = module_image(read_file(scratch.at("code.so")));
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes) {
    RTC_CALL("nvrtcGetCUBINSize");
    *bytes = program->image.size();
    return program->image.empty() ? NVRTC_ERROR_INVALID_PROGRAM : NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *out) {
    RTC_CALL("nvrtcGetCUBIN");
    memcpy(out, program->image.data(), program->image.size());
    return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes) {
    RTC_CALL("nvrtcGetProgramLogSize");
    *bytes = program->log.size() + 1;
    return NVRTC_SUCCESS;
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *out) {
    RTC_CALL("nvrtcGetProgramLog");
    memcpy(out, program->log.c_str(), program->log.size() + 1);
    return NVRTC_SUCCESS;
}
