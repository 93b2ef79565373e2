/* dnn.h: shared declarations of the cuDNN emulator.
 *
 *     dnn.cpp         descriptors and their attributes, and cuDNN's other calls
 *     dnn_graph.cpp   validates tensors, operations and graphs; lists the engines of a graph
 *     dnn_run.cpp     a graph's arithmetic */
#ifndef WEFT_EMULATOR_DNN_H
#define WEFT_EMULATOR_DNN_H

#include <cudnn_graph.h>

#include "emulator.h"

namespace weft_emulator {

struct Descriptor;
using DescriptorRef = std::shared_ptr<Descriptor>;

struct Attribute {
    std::vector<char> bytes; /* of all attributes except descriptors */
    std::vector<DescriptorRef> descriptors;
};

/* ---- a validated graph ---- */

struct Tensor {
    int64_t dims[4], strides[4], id, alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
};
struct Operation {
    enum Kind { PRODUCT, POINTWISE, REDUCTION } kind;
    int mode = 0;                           /* of a pointwise operation or a reduction */
    int64_t axis = -1;                      /* of an index */
    int x = -1, b = -1, where = -1, y = -1; /* tensors of the graph */
};
struct OperationGraph {
    std::vector<Tensor> tensors;
    std::vector<Operation> operations; /* in topological order */
    bool is_attention = false;         /* a shape with engines */
};
using GraphRef = std::shared_ptr<const OperationGraph>;

/* An engine configuration of a graph. Configurations differ in bits. */
struct Way {
    bool varies = false;  /* nondeterministic */
    bool is_there = true; /* false: it has no plan */
    int64_t parts = 1;    /* number of partial sums over keys */
    size_t workspace = 0;
};

struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, Attribute> attributes;
    Tensor tensor{};       /* TENSOR */
    GraphRef graph;        /* OPERATIONGRAPH and descriptors made from one */
    Way way;               /* ENGINECFG, ENGINE, EXECUTION_PLAN */
    std::vector<Way> ways; /* ENGINEHEUR */
};

/* ---- dnn.cpp ---- */

/* Reports a wrong use of the interface, also on stderr. */
cudnnStatus_t misused(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reports a valid but unsupported request. */
cudnnStatus_t unsupported(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
template <typename T> T one_of(const Descriptor &d, int name, T otherwise) {
    const auto found = d.attributes.find(name);
    if (found == d.attributes.end() || found->second.bytes.size() < sizeof(T)) return otherwise;
    return *reinterpret_cast<const T *>(found->second.bytes.data());
}
DescriptorRef descriptor_of(const Descriptor &d, int name); /* empty: not set */

/* ---- dnn_graph.cpp ---- */

cudnnStatus_t judge_tensor(Descriptor &d);
cudnnStatus_t judge_operation(const Descriptor &d);
cudnnStatus_t judge_graph(Descriptor &d);
std::vector<Way> ways_of(const OperationGraph &graph);
size_t bytes_of(cudnnDataType_t type);
size_t bytes_of(const Tensor &t); /* from its first element to its last */

/* ---- dnn_run.cpp ---- */

struct Run {
    GraphRef graph;
    Way way;
    std::vector<void *> at;    /* of each tensor, in GPU memory */
    std::vector<float> values; /* of each tensor passed by value */
    void *workspace = nullptr;
};
void run_graph(const Run &run);

} // namespace weft_emulator
#endif
