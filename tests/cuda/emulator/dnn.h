/* dnn.h: what the rooms of cuDNN's emulator share.
 *
 *     dnn.cpp         descriptors and their attributes, and cuDNN's other calls
 *     dnn_graph.cpp   what makes a tensor, an operation, a graph sound, and which graphs there are ways for
 *     dnn_run.cpp     a graph's arithmetic
 */
#ifndef WEFT_EMULATOR_DNN_H
#define WEFT_EMULATOR_DNN_H

#include <cudnn_graph.h>

#include "emulator.h"

namespace weft_emulator {

struct Descriptor;
using DescriptorRef = std::shared_ptr<Descriptor>;

struct Attribute {
    std::vector<char> bytes; /* of anything but descriptors */
    std::vector<DescriptorRef> descriptors;
};

/* ---- a graph, once it was judged ---- */

struct Tensor {
    int64_t dims[4], strides[4], id, alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
};
struct Operation {
    enum Kind { PRODUCT, POINTWISE, REDUCTION } kind;
    int mode = 0;                           /* of a pointwise one or a reduction */
    int64_t axis = -1;                      /* of an index */
    int x = -1, b = -1, where = -1, y = -1; /* tensors of the graph */
};
struct OperationGraph {
    std::vector<Tensor> tensors;
    std::vector<Operation> operations; /* each behind those whose results it reads */
    bool is_attention = false;         /* of a shape that there are ways for */
};
using GraphRef = std::shared_ptr<const OperationGraph>;

/* Ways of a graph. They differ in bits. */
struct Way {
    bool varies = false;  /* its bits differ from run to run */
    bool is_there = true; /* else no plan can be made of it */
    int64_t parts = 1;    /* of each sum over keys */
    size_t workspace = 0;
};

struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, Attribute> attributes;
    Tensor tensor{};       /* TENSOR */
    GraphRef graph;        /* OPERATIONGRAPH, and what is made of one */
    Way way;               /* ENGINECFG, ENGINE, EXECUTION_PLAN */
    std::vector<Way> ways; /* ENGINEHEUR */
};

/* ---- dnn.cpp ---- */

/* A wrong use of the interface: the sentence goes to stderr as well. */
cudnnStatus_t misused(cudnnStatus_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What is sound, and not there. */
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
    std::vector<void *> at;    /* of each tensor, in the memory of the card */
    std::vector<float> values; /* of each tensor that is told by value */
    void *workspace = nullptr;
};
void run_graph(const Run &run);

} // namespace weft_emulator
#endif
