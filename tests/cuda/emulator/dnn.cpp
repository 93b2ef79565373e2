/* dnn.cpp: the part of cuDNN's backend interface that Weft uses. A table lists the allowed attributes of each
 * descriptor. Wrong, missing or late attributes return a status, and definite bugs of the caller are also printed to
 * stderr. Descriptions of absent GPUs are not supported. */
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "dnn.h"

using namespace weft_emulator;

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

namespace weft_emulator {
namespace {

thread_local std::string last_said;

constexpr int64_t MANY = 1 << 20;
constexpr int NO_TYPE = -1;

struct Rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most;
    bool required;
    int holds; /* the type of descriptors that it accepts */
};

#define TENSOR_OF(of, name, required)                                                                                  \
    { of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, required, CUDNN_BACKEND_TENSOR_DESCRIPTOR }
#define PLAIN(of, name, type, most, required)                                                                          \
    { of, name, type, 1, most, required, NO_TYPE }
#define HELD(of, name, most, holds)                                                                                    \
    { of, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, most, true, holds }

const Rule rules[] = {
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 8, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false),
    PLAIN(CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false),
    PLAIN(CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, true),
    HELD(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, 1,
         CUDNN_BACKEND_MATMUL_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true),
    PLAIN(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false),
    HELD(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 1,
         CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, false),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, false),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, true),
    PLAIN(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
          true),
    PLAIN(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, true),
    TENSOR_OF(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, true),
    HELD(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1,
         CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
    HELD(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, MANY, NO_TYPE),
    PLAIN(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, true),
    HELD(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 1,
         CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true),
    HELD(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 1,
         CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
    PLAIN(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, MANY, true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, MANY,
          true),
    PLAIN(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, false),
};

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR: return 8;
    default: return sizeof(int);
    }
}

/* Live objects, reported when the process ends. Objects with a planted failure of their destruction are excluded. */
struct Made {
    std::map<void *, DescriptorRef> descriptors;
    std::map<void *, std::unique_ptr<cudnnContext>> handles;
    size_t forgiven = 0;
    ~Made() {
        if (descriptors.size() + handles.size() > forgiven)
            (void)fprintf(stderr, "cuda emulator: %zu handles and %zu descriptors of cuDNN were not released\n",
                          handles.size(), descriptors.size());
    }
};
Made &made() {
    static Made all;
    return all;
}
DescriptorRef find(void *what) {
    const auto found = made().descriptors.find(what);
    return found == made().descriptors.end() ? nullptr : found->second;
}
cudnnContext *context_of(void *handle) {
    const auto found = made().handles.find(handle);
    return found == made().handles.end() ? nullptr : found->second.get();
}

const Rule *rule_of(const Descriptor &d, int name) {
    for (const Rule &rule : rules)
        if (rule.of == d.type && rule.name == name) return &rule;
    return nullptr;
}

bool is_known(cudnnBackendDescriptorType_t type) {
    for (const Rule &rule : rules)
        if (rule.of == type) return true;
    return type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || type == CUDNN_BACKEND_ENGINE_DESCRIPTOR;
}

/* Attributes whose values are descriptors. */
cudnnStatus_t take_descriptors(Attribute &out, const Rule &rule, int64_t n, const void *values) {
    for (int64_t i = 0; i < n; i++) {
        const DescriptorRef d = find(static_cast<void *const *>(values)[i]);
        if (d == nullptr) return misused(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d: no descriptor", rule.name);
        if (!d->finalized)
            return misused(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d: it is not finalized", rule.name);
        if (rule.holds != NO_TYPE && rule.holds != static_cast<int>(d->type))
            return misused(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "attribute %d: descriptor of type %d", rule.name,
                           d->type);
        out.descriptors.push_back(d);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t judge_plan(Descriptor &d) {
    const DescriptorRef config = descriptor_of(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (context_of(one_of<void *>(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr)) == nullptr)
        return misused(CUDNN_STATUS_BAD_PARAM, "a plan's handle is none");
    if (!config->way.is_there)
        return unsupported(CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT, "this way needs more shared memory");
    d.graph = config->graph;
    d.way = config->way;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t judge_heuristic(Descriptor &d) {
    const auto mode = one_of(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    if (mode != CUDNN_HEUR_MODE_A) return unsupported(CUDNN_STATUS_NOT_SUPPORTED, "heuristic mode %d", mode);
    d.graph = descriptor_of(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
    d.ways = ways_of(*d.graph);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t judge_pack(const Descriptor &d) {
    const size_t ids = d.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).bytes.size();
    const size_t pointers = d.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).bytes.size();
    return ids == pointers ? CUDNN_STATUS_SUCCESS
                           : misused(CUDNN_STATUS_BAD_PARAM, "a variant pack has other names than pointers");
}

cudnnStatus_t judge(Descriptor &d) {
    switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return judge_tensor(d);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return judge_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        if (context_of(one_of<void *>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, nullptr)) == nullptr)
            return misused(CUDNN_STATUS_BAD_PARAM, "a graph's handle is none");
        return judge_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return judge_heuristic(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return judge_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return judge_pack(d);
    default: return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- attribute queries ---- */

/* The count may exceed the requested number; at most `most` are returned. */
cudnnStatus_t give_ways(const Descriptor &d, int64_t most, int64_t *n, void *values) {
    *n = static_cast<int64_t>(d.ways.size());
    for (int64_t i = 0; i < most && i < *n; i++) {
        const DescriptorRef config = find(static_cast<void **>(values)[i]);
        if (config == nullptr || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return misused(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a way is to go into no descriptor for one");
        config->graph = d.graph;
        config->way = d.ways[static_cast<size_t>(i)];
        config->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_engine(const Descriptor &d, int64_t *n, void *values) {
    const DescriptorRef engine = find(*static_cast<void **>(values));
    if (engine == nullptr || engine->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
        return misused(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "an engine is to go into no descriptor for one");
    engine->way = d.way;
    engine->finalized = true;
    *n = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_notes(const Descriptor &d, int64_t most, int64_t *n, void *values) {
    const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                 CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    *n = d.way.varies ? 2 : 1;
    std::memcpy(values, notes, sizeof *notes * static_cast<size_t>(most < *n ? most : *n));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give(const Descriptor &d, int name, int type, int64_t most, int64_t *n, void *values) {
    const bool descriptor = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && descriptor)
        return give_ways(d, most, n, values);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && descriptor && most == 1)
        return give_engine(d, n, values);
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return give_notes(d, most, n, values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        type == CUDNN_TYPE_INT64 && most == 1) {
        const auto bytes = static_cast<int64_t>(d.way.workspace);
        std::memcpy(values, &bytes, sizeof bytes);
        *n = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    return misused(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "no attribute %d of a descriptor of type %d to be had so",
                   name, d.type);
}

/* ---- execution ---- */

/* Finds and validates the tensor in the variant pack. */
cudnnStatus_t bring(Run &run, const Tensor &t, const std::map<int64_t, void *> &pack) {
    const auto found = pack.find(t.id);
    void *const at = found == pack.end() ? nullptr : found->second;
    float value = 0;
    char name[48];
    (void)snprintf(name, sizeof name, "tensor %lld", static_cast<long long>(t.id));
    if (!t.is_virtual && at == nullptr)
        return misused(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnBackendExecute: %s is not in the pack", name);
    if (t.by_value && sort_of(at) == Sort::DEVICE)
        return misused(CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute: %s is told by value, and lies on the card", name);
    if (t.by_value && t.type == CUDNN_DATA_INT32) value = static_cast<float>(*static_cast<int32_t *>(at));
    if (t.by_value && t.type == CUDNN_DATA_FLOAT) value = *static_cast<float *>(at);
    if (!t.is_virtual && !t.by_value && sort_of(at) != Sort::DEVICE)
        return misused(CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute: %s lies in the host's memory", name);
    if (!t.is_virtual && !t.by_value && !whole(at, bytes_of(t), "cudnnBackendExecute", name))
        return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    if (!t.is_virtual && !t.by_value && reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(t.alignment) != 0)
        return misused(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                       "cudnnBackendExecute: %s does not begin at a multiple of %lld bytes", name,
                       static_cast<long long>(t.alignment));
    run.at.push_back(at);
    run.values.push_back(value);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t prepare(Run &run, const Descriptor &plan, const Descriptor &pack) {
    const Attribute &ids = pack.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const Attribute &pointers = pack.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::map<int64_t, void *> by_id;
    for (size_t i = 0; i < ids.bytes.size() / 8; i++) {
        int64_t id = 0;
        void *at = nullptr;
        std::memcpy(&id, ids.bytes.data() + i * 8, 8);
        std::memcpy(&at, pointers.bytes.data() + i * 8, 8);
        if (!by_id.emplace(id, at).second)
            return misused(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a variant pack has tensor %lld twice",
                           static_cast<long long>(id));
    }
    run.graph = plan.graph;
    run.way = plan.way;
    run.workspace = one_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    if (plan.way.workspace > 0 && (run.workspace == nullptr || sort_of(run.workspace) != Sort::DEVICE ||
                                   reinterpret_cast<uintptr_t>(run.workspace) % 16 != 0))
        return misused(CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute: a workspace of %zu bytes is needed",
                       plan.way.workspace);
    if (plan.way.workspace > 0 && !whole(run.workspace, plan.way.workspace, "cudnnBackendExecute", "the workspace"))
        return CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND;
    for (const Tensor &t : plan.graph->tensors) {
        const cudnnStatus_t status = bring(run, t, by_id);
        if (status != CUDNN_STATUS_SUCCESS) return status;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t say(cudnnStatus_t status, const char *format, va_list values, bool aloud) {
    char text[512];
    (void)vsnprintf(text, sizeof text, format, values);
    last_said = text;
    if (aloud) (void)refuse(cudaErrorInvalidValue, "%s", text);
    return status;
}

} // namespace

cudnnStatus_t misused(cudnnStatus_t status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)say(status, format, values, true);
    va_end(values);
    return status;
}

cudnnStatus_t unsupported(cudnnStatus_t status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)say(status, format, values, false);
    va_end(values);
    return status;
}

DescriptorRef descriptor_of(const Descriptor &d, int name) {
    const auto found = d.attributes.find(name);
    return found == d.attributes.end() ? nullptr : found->second.descriptors.at(0);
}

} // namespace weft_emulator

#define DNN_CALL(name)                                                                                                 \
    const std::lock_guard<Lock> lock(lock_of_all());                                                                   \
    const int planted_code = planted(name);                                                                            \
    if (planted_code != 0) return static_cast<cudnnStatus_t>(planted_code)
#define DNN_CALL_THAT_DESTROYS(name)                                                                                   \
    const std::lock_guard<Lock> lock(lock_of_all());                                                                   \
    const int planted_code = planted(name);                                                                            \
    made().forgiven += planted_code != 0;                                                                              \
    if (planted_code != 0) return static_cast<cudnnStatus_t>(planted_code)

EXPORT size_t cudnnGetVersion(void) {
    return CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (static_cast<int>(status) / 1000) {
    case 0: return "CUDNN_STATUS_SUCCESS";
    case 1: return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2: return "CUDNN_STATUS_BAD_PARAM";
    case 3: return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4: return "CUDNN_STATUS_INTERNAL_ERROR";
    case 5: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "an unknown status";
    }
}

EXPORT void cudnnGetLastErrorString(char *text, size_t size) {
    const std::lock_guard<Lock> lock(lock_of_all());
    if (size > 0) (void)snprintf(text, size, "%s", last_said.c_str());
    last_said.clear();
}

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    DNN_CALL("cudnnCreate");
    if (device_ready() != cudaSuccess || sticking() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
    auto context = std::make_unique<cudnnContext>(cudnnContext{device_now(), nullptr});
    *out = context.get();
    made().handles.emplace(*out, std::move(context));
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    DNN_CALL_THAT_DESTROYS("cudnnDestroy");
    return made().handles.erase(handle) == 1 ? CUDNN_STATUS_SUCCESS
                                             : misused(CUDNN_STATUS_BAD_PARAM, "cudnnDestroy: there is no such handle");
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    DNN_CALL("cudnnSetStream");
    cudnnContext *const context = context_of(handle);
    if (context == nullptr) return misused(CUDNN_STATUS_BAD_PARAM, "cudnnSetStream: there is no such handle");
    if (stream_of(stream) == nullptr) return misused(CUDNN_STATUS_BAD_PARAM, "cudnnSetStream: there is no such stream");
    context->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    DNN_CALL("cudnnBackendCreateDescriptor");
    if (!is_known(type)) return unsupported(CUDNN_STATUS_NOT_SUPPORTED, "a descriptor of type %d", type);
    const auto d = std::make_shared<Descriptor>();
    d->type = type;
    *out = d.get();
    made().descriptors.emplace(*out, d);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t what) {
    DNN_CALL_THAT_DESTROYS("cudnnBackendDestroyDescriptor");
    return made().descriptors.erase(what) == 1
               ? CUDNN_STATUS_SUCCESS
               : misused(CUDNN_STATUS_BAD_PARAM, "cudnnBackendDestroyDescriptor: there is no such descriptor");
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t what, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    DNN_CALL("cudnnBackendSetAttribute");
    const DescriptorRef d = find(what);
    const Rule *const rule = d == nullptr ? nullptr : rule_of(*d, name);
    Attribute attribute;
    if (d == nullptr || values == nullptr) return misused(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d", name);
    if (d->finalized)
        return misused(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d is set when all was said already", name);
    if (rule == nullptr) return misused(CUDNN_STATUS_BAD_PARAM, "a descriptor of type %d has no %d", d->type, name);
    if (type != rule->type) return misused(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d as %d", name, type);
    if (n < rule->least || n > rule->most)
        return misused(CUDNN_STATUS_BAD_PARAM, "attribute %d has %lld values", name, static_cast<long long>(n));
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const cudnnStatus_t status = take_descriptors(attribute, *rule, n, values);
        if (status != CUDNN_STATUS_SUCCESS) return status;
    } else {
        const auto bytes = static_cast<const char *>(values);
        attribute.bytes.assign(bytes, bytes + size_of(type) * static_cast<size_t>(n));
    }
    d->attributes[name] = std::move(attribute);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t what, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t most, int64_t *n,
                                              void *values) {
    DNN_CALL("cudnnBackendGetAttribute");
    const DescriptorRef d = find(what);
    if (d == nullptr || n == nullptr || values == nullptr || most < 1)
        return misused(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d is asked for into nothing", name);
    if (!d->finalized) return misused(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "attribute %d is asked for early", name);
    return give(*d, name, type, most, n, values);
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t what) {
    DNN_CALL("cudnnBackendFinalize");
    const DescriptorRef d = find(what);
    if (d == nullptr || d->finalized) return misused(CUDNN_STATUS_BAD_PARAM, "nothing is there to be finalized");
    for (const Rule &rule : rules)
        if (rule.of == d->type && rule.required && d->attributes.count(rule.name) == 0)
            return misused(CUDNN_STATUS_BAD_PARAM, "a descriptor of type %d lacks attribute %d", d->type, rule.name);
    const cudnnStatus_t status = judge(*d);
    d->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack) {
    DNN_CALL("cudnnBackendExecute");
    const cudnnContext *const context = context_of(handle);
    const DescriptorRef p = find(plan), of = find(pack);
    Run run;
    if (context == nullptr || p == nullptr || of == nullptr || !p->finalized || !of->finalized ||
        p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || of->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return misused(CUDNN_STATUS_BAD_PARAM, "cudnnBackendExecute: of a handle, a plan and a pack");
    if (sticking() != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
    const cudnnStatus_t status = prepare(run, *p, *of);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    const cudaError_t code = queue(context->stream, "cudnnBackendExecute", once([run] {
                                       count_launch("cudnnBackendExecute");
                                       run_graph(run);
                                   }),
                                   true);
    return code == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
