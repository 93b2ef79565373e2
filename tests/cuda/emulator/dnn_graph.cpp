/* dnn_graph.cpp: validates tensors, operations and graphs of cuDNN's interface, and lists engine configurations for
 * supported graphs. These are attention in bf16 with a head size that is a multiple of 8 up to 256. cuDNN 9.19 has the
 * same limits for compute capability 8.0, 8.9 and 9.0 (checked by test_compiled_attention.c). The first configuration
 * is marked nondeterministic, and is; the second has no plan; the rest differ in bits. */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dnn.h"

namespace weft_emulator {
namespace {

constexpr int64_t MOST_HEAD = 256, HEAD_STEP = 8, OF_VECTORS = 16; /* elements, elements, bytes */
constexpr int N_WAYS = 10;

std::vector<int64_t> numbers_of(const Descriptor &d, int name) {
    const std::vector<char> &bytes = d.attributes.at(name).bytes;
    std::vector<int64_t> out(bytes.size() / sizeof(int64_t));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
}

/* True if each dimension equals y's, or is one and repeated. */
bool spreads(const Tensor &x, const Tensor &y) {
    for (int i = 0; i < 4; i++)
        if (x.dims[i] != y.dims[i] && x.dims[i] != 1) return false;
    return true;
}

const Tensor *tensor_of(const Descriptor &d, int name) {
    const DescriptorRef t = descriptor_of(d, name);
    return t == nullptr ? nullptr : &t->tensor;
}

cudnnStatus_t judge_product(const Descriptor &d) {
    const Tensor &a = *tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const Tensor &b = *tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const Tensor &c = *tensor_of(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    bool fits = a.dims[2] == c.dims[2] && b.dims[3] == c.dims[3] && a.dims[3] == b.dims[2];
    for (int i = 0; i < 2; i++) /* heads may share those of b */
        fits = fits && a.dims[i] == c.dims[i] && c.dims[i] % b.dims[i] == 0;
    return fits ? CUDNN_STATUS_SUCCESS : misused(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a product does not fit");
}

int operands_of(int mode) {
    switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_TANH_FWD:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_CMP_GT:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return 0;
    }
}

cudnnStatus_t judge_pointwise(const Descriptor &d) {
    const Descriptor &how = *descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = one_of<int>(how, CUDNN_ATTR_POINTWISE_MODE, -1);
    const auto axis = one_of<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
    const Tensor &x = *tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const Tensor *const b = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Tensor *const where = tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const Tensor &y = *tensor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const bool compares = mode == CUDNN_POINTWISE_CMP_GT || mode == CUDNN_POINTWISE_CMP_GE;
    const bool index = mode == CUDNN_POINTWISE_GEN_INDEX;
    if (operands_of(mode) == 0) return unsupported(CUDNN_STATUS_NOT_SUPPORTED, "pointwise mode %d", mode);
    if (operands_of(mode) != 1 + (b != nullptr) + (where != nullptr) || (where != nullptr && b == nullptr))
        return misused(CUDNN_STATUS_BAD_PARAM, "pointwise mode %d has too few operands, or too many", mode);
    if (index != (axis >= 0 && axis < 4)) return misused(CUDNN_STATUS_BAD_PARAM, "an index of axis %d", (int)axis);
    if (!spreads(x, y) || (b != nullptr && !spreads(*b, y)) || (where != nullptr && !spreads(*where, y)))
        return misused(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "operands of pointwise mode %d do not fit", mode);
    if (compares != (y.type == CUDNN_DATA_BOOLEAN) || (index && y.type != CUDNN_DATA_INT32) ||
        (where != nullptr && where->type != CUDNN_DATA_BOOLEAN))
        return misused(CUDNN_STATUS_BAD_PARAM, "pointwise mode %d on types that it is not made for", mode);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t judge_reduction(const Descriptor &d) {
    const Descriptor &how = *descriptor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const int mode = one_of<int>(how, CUDNN_ATTR_REDUCTION_OPERATOR, -1);
    const Tensor &x = *tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const Tensor &y = *tensor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    if (mode != CUDNN_REDUCE_TENSOR_ADD && mode != CUDNN_REDUCE_TENSOR_MAX)
        return unsupported(CUDNN_STATUS_NOT_SUPPORTED, "reduction %d", mode);
    return spreads(y, x) ? CUDNN_STATUS_SUCCESS
                         : misused(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a reduction does not fit");
}

/* ---- a graph ---- */

/* A graph under construction from descriptors. */
struct Builder {
    OperationGraph graph;
    std::map<const Descriptor *, int> known;
    std::map<int64_t, const Descriptor *> by_id;
    std::vector<bool> is_made; /* by an operation */
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;

    int tensor(const DescriptorRef &d) {
        if (d == nullptr) return -1;
        const auto found = known.find(d.get());
        if (found != known.end()) return found->second;
        if (!by_id.emplace(d->tensor.id, d.get()).second)
            status = misused(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a graph has two tensors %lld",
                             static_cast<long long>(d->tensor.id));
        known[d.get()] = static_cast<int>(graph.tensors.size());
        graph.tensors.push_back(d->tensor);
        is_made.push_back(false);
        return known[d.get()];
    }
    void read(int t) {
        const auto at = static_cast<size_t>(t);
        if (t >= 0 && graph.tensors[at].is_virtual && !is_made[at])
            status = misused(CUDNN_STATUS_BAD_PARAM, "tensor %lld is read before anything makes it",
                             static_cast<long long>(graph.tensors[at].id));
    }
    void write(int t) {
        const auto at = static_cast<size_t>(t);
        if (is_made[at] || graph.tensors[at].by_value)
            status = misused(CUDNN_STATUS_BAD_PARAM, "tensor %lld is made twice, or told by value",
                             static_cast<long long>(graph.tensors[at].id));
        is_made[at] = true;
    }
    void add(const Descriptor &d) {
        Operation o{};
        switch (d.type) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            o.kind = Operation::PRODUCT;
            o.x = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
            o.b = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
            o.y = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
            break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
            const Descriptor &how = *descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
            o.kind = Operation::POINTWISE;
            o.mode = one_of<int>(how, CUDNN_ATTR_POINTWISE_MODE, 0);
            o.axis = one_of<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
            o.x = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
            o.b = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
            o.where = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
            o.y = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
            break;
        }
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            o.kind = Operation::REDUCTION;
            o.mode =
                one_of<int>(*descriptor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR, 0);
            o.x = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
            o.y = tensor(descriptor_of(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
            break;
        default: status = misused(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "type %d in a graph", d.type); return;
        }
        for (int t : {o.x, o.b, o.where}) read(t);
        write(o.y);
        graph.operations.push_back(o);
    }
};

/* True for bf16 in memory, in vectors of 16 bytes along the head. */
bool is_of_heads(const Tensor &t, int64_t size, int64_t size_stride) {
    return !t.is_virtual && t.type == CUDNN_DATA_BFLOAT16 && t.alignment >= OF_VECTORS && size_stride == 1 &&
           size % HEAD_STEP == 0 && size <= MOST_HEAD;
}

/* True for scores of queries and keys, their softmax over keys, and the product with values. */
bool is_attention(const OperationGraph &g) {
    std::vector<const Operation *> products;
    int most = 0, sums = 0;
    for (const Operation &o : g.operations) {
        if (o.kind == Operation::PRODUCT) products.push_back(&o);
        if (o.kind == Operation::REDUCTION && o.mode == CUDNN_REDUCE_TENSOR_MAX) most++;
        if (o.kind == Operation::REDUCTION && o.mode == CUDNN_REDUCE_TENSOR_ADD) sums++;
    }
    if (products.size() != 2 || products[0] != &g.operations[0] || most != 1 || sums != 1) return false;
    const auto at = [&g](int t) -> const Tensor & { return g.tensors[static_cast<size_t>(t)]; };
    const Tensor &q = at(products[0]->x), &k = at(products[0]->b), &p = at(products[1]->x), &v = at(products[1]->b);
    const Tensor &o = at(products[1]->y);
    return is_of_heads(q, q.dims[3], q.strides[3]) && is_of_heads(k, k.dims[2], k.strides[2]) &&
           is_of_heads(v, v.dims[3], v.strides[3]) && is_of_heads(o, o.dims[3], o.strides[3]) && p.is_virtual &&
           p.type == CUDNN_DATA_BFLOAT16 && at(products[0]->y).type == CUDNN_DATA_FLOAT;
}

} // namespace

size_t bytes_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
}

size_t bytes_of(const Tensor &t) {
    int64_t last = 0;
    for (int i = 0; i < 4; i++) last += (t.dims[i] - 1) * t.strides[i];
    return static_cast<size_t>(last + 1) * bytes_of(t.type);
}

cudnnStatus_t judge_tensor(Descriptor &d) {
    const std::vector<int64_t> dims = numbers_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const std::vector<int64_t> strides = numbers_of(d, CUDNN_ATTR_TENSOR_STRIDES);
    Tensor &t = d.tensor;
    if (dims.size() != strides.size()) return misused(CUDNN_STATUS_BAD_PARAM, "a tensor has other strides than sizes");
    if (dims.size() != 4) return unsupported(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of %zu dimensions", dims.size());
    for (size_t i = 0; i < 4; i++) {
        if (dims[i] <= 0 || strides[i] <= 0)
            return misused(CUDNN_STATUS_BAD_PARAM, "a tensor's size or stride is not above 0");
        t.dims[i] = dims[i];
        t.strides[i] = strides[i];
    }
    t.id = one_of<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    t.alignment = one_of<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    t.type = one_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
    t.is_virtual = one_of(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
    t.by_value = one_of(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
    if (t.alignment <= 0 || (t.alignment & (t.alignment - 1)) != 0 ||
        t.alignment % static_cast<int64_t>(bytes_of(t.type)) != 0)
        return misused(CUDNN_STATUS_BAD_PARAM, "a tensor is aligned to %d bytes", static_cast<int>(t.alignment));
    if (t.is_virtual && t.by_value) return misused(CUDNN_STATUS_BAD_PARAM, "a tensor is nowhere, and told by value");
    if (t.by_value && bytes_of(t) != bytes_of(t.type))
        return misused(CUDNN_STATUS_BAD_PARAM, "a tensor of many elements is told by value");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t judge_operation(const Descriptor &d) {
    switch (d.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return judge_product(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return judge_pointwise(d);
    default: return judge_reduction(d);
    }
}

cudnnStatus_t judge_graph(Descriptor &d) {
    Builder b;
    for (const DescriptorRef &operation : d.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
        b.add(*operation);
        if (b.status != CUDNN_STATUS_SUCCESS) return b.status;
    }
    b.graph.is_attention = is_attention(b.graph);
    d.graph = std::make_shared<const OperationGraph>(std::move(b.graph));
    return CUDNN_STATUS_SUCCESS;
}

/* Returns no configurations if the graph is not attention; its first tensor must be the queries. */
std::vector<Way> ways_of(const OperationGraph &graph) {
    std::vector<Way> out;
    for (int i = 0; graph.is_attention && i < N_WAYS; i++) {
        const Tensor &q = graph.tensors[0];
        Way way;
        way.varies = i == 0;
        way.is_there = i != 1;
        way.parts = i < 3 ? 1 : i - 1;
        way.workspace = q.dims[2] == 1 ? 0
                                       : static_cast<size_t>((q.dims[0] * q.dims[1] * q.dims[2] * 4 + 255) / 256 * 256);
        out.push_back(way);
    }
    return out;
}

} // namespace weft_emulator
