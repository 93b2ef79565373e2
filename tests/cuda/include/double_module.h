/* double_module.h: what the double puts around code that it compiles at run time (C++). */
#ifndef WEFT_DOUBLE_MODULE_H
#define WEFT_DOUBLE_MODULE_H

#include <utility>

#include "cuda_runtime.h"

/* A kernel by its name: its arguments come as pointers to them. */
struct double_entry {
    const void *kernel;
    void (*call)(const void *kernel, const void *arguments);
    size_t bytes;
    void (*pack)(void *out, void *const *values);
};

template <typename... P> struct double_packed {
    template <size_t... I> static void fill(void *out, void *const *values, std::index_sequence<I...>) {
        static_cast<double_arguments<P...> *>(out)->values = std::tuple<P...>(*static_cast<P *>(values[I])...);
    }
    static void pack(void *out, void *const *values) {
        fill(out, values, std::index_sequence_for<P...>());
    }
};
template <typename... P> static inline double_entry double_entry_of(void (*kernel)(P...)) {
    return {reinterpret_cast<const void *>(kernel), double_arguments<typename std::remove_const<P>::type...>::call,
            sizeof(double_arguments<typename std::remove_const<P>::type...>),
            double_packed<typename std::remove_const<P>::type...>::pack};
}
#define DOUBLE_ENTRY(name)                                                                                             \
    extern "C" __attribute__((visibility("default"))) const double_entry double_entry_##name;                          \
    const double_entry double_entry_##name = double_entry_of(name)

#endif
