/* emulator_module.h: the emulator's wrapper of code compiled at run time (C++). */
#ifndef WEFT_EMULATOR_MODULE_H
#define WEFT_EMULATOR_MODULE_H

#include <utility>

#include "cuda_runtime.h"

/* A kernel by name; arguments are passed as pointers. */
struct emulator_entry {
    const void *kernel;
    void (*call)(const void *kernel, const void *arguments);
    size_t bytes;
    void (*pack)(void *out, void *const *values);
};

template <typename... P> struct emulator_packed {
    template <size_t... I> static void fill(void *out, void *const *values, std::index_sequence<I...>) {
        static_cast<emulator_arguments<P...> *>(out)->values = std::tuple<P...>(*static_cast<P *>(values[I])...);
    }
    static void pack(void *out, void *const *values) {
        fill(out, values, std::index_sequence_for<P...>());
    }
};
template <typename... P> static inline emulator_entry emulator_entry_of(void (*kernel)(P...)) {
    return {reinterpret_cast<const void *>(kernel), emulator_arguments<typename std::remove_const<P>::type...>::call,
            sizeof(emulator_arguments<typename std::remove_const<P>::type...>),
            emulator_packed<typename std::remove_const<P>::type...>::pack};
}
#define EMULATOR_ENTRY(name)                                                                                           \
    extern "C" __attribute__((visibility("default"))) const emulator_entry emulator_entry_##name;                      \
    const emulator_entry emulator_entry_##name = emulator_entry_of(name)

#endif
