/* dnn_run.cpp: the arithmetic of a graph, one row of queries at a time: each operation in order computes that row of
 * its result. fp32, except that tensors of another type round their values. */
#include <algorithm>
#include <cmath>
#include <cstring>

#include "dnn.h"

#include "cuda_bf16.h"

namespace weft_emulator {
namespace {

using Row = std::vector<float>;

/* Position of a query. */
struct Place {
    int64_t batch, head, row;
};

float get(const void *at, int64_t i, cudnnDataType_t type) {
    if (type == CUDNN_DATA_BFLOAT16) return emulator_from_bf16(static_cast<const unsigned short *>(at)[i]);
    if (type == CUDNN_DATA_INT32) return static_cast<float>(static_cast<const int32_t *>(at)[i]);
    return static_cast<const float *>(at)[i];
}

void put(void *at, int64_t i, cudnnDataType_t type, float x) {
    if (type == CUDNN_DATA_BFLOAT16) static_cast<unsigned short *>(at)[i] = emulator_to_bf16(x);
    else if (type == CUDNN_DATA_INT32) static_cast<int32_t *>(at)[i] = static_cast<int32_t>(x);
    else static_cast<float *>(at)[i] = x;
}

float as_type(float x, cudnnDataType_t type) {
    return type == CUDNN_DATA_BFLOAT16 ? emulator_from_bf16(emulator_to_bf16(x)) : x;
}

float apply(int mode, float x, float b, float where) {
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_TANH_FWD: return std::tanh(x);
    case CUDNN_POINTWISE_CMP_GT: return x > b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_CMP_GE: return x >= b ? 1.0f : 0.0f;
    default: return where != 0 ? x : b;
    }
}

/* A run, and its cached data between rows. */
class Runner {
  public:
    explicit Runner(const Run &of) : run(of), graph(*of.graph), rows(graph.tensors.size()) {}
    void make(Place place) {
        for (const Operation &o : graph.operations) {
            const Tensor &y = graph.tensors[static_cast<size_t>(o.y)];
            Row &out = rows[static_cast<size_t>(o.y)];
            out.assign(static_cast<size_t>(y.dims[3]), 0.0f);
            if (o.kind == Operation::PRODUCT) multiply(o, place, out);
            else if (o.kind == Operation::REDUCTION) reduce(o, place, out);
            else each(o, place, out);
            for (float &x : out) x = as_type(x, y.type);
            if (!y.is_virtual) store(o.y, place, out);
        }
    }

  private:
    const Run &run;
    const OperationGraph &graph;
    std::vector<Row> rows; /* of each tensor, at the current position */
    std::map<std::pair<int, int64_t>, Row> matrices;

    int64_t begin(const Tensor &t, Place place, int64_t heads) const {
        const int64_t head = place.head / (heads / t.dims[1]);
        return (t.dims[0] == 1 ? 0 : place.batch) * t.strides[0] + head * t.strides[1] +
               (t.dims[2] == 1 ? 0 : place.row) * t.strides[2];
    }
    void store(int at, Place place, const Row &row) const {
        const Tensor &t = graph.tensors[static_cast<size_t>(at)];
        for (int64_t i = 0; i < t.dims[3]; i++)
            put(run.at[static_cast<size_t>(at)], begin(t, place, t.dims[1]) + i * t.strides[3], t.type,
                row[static_cast<size_t>(i)]);
    }
    /* Returns one number of the position's row of a tensor that may be broadcast. */
    float number(int at, Place place, int64_t heads, int64_t i) const {
        const auto index = static_cast<size_t>(at);
        const Tensor &t = graph.tensors[index];
        const int64_t column = t.dims[3] == 1 ? 0 : i;
        if (t.is_virtual) return rows[index][static_cast<size_t>(column)];
        if (t.by_value) return run.values[index];
        return get(run.at[index], begin(t, place, heads) + column * t.strides[3], t.type);
    }
    /* Returns the head's matrix of a matmul's second operand, column by column. */
    const Row &matrix(int at, Place place, int64_t heads) {
        const Tensor &t = graph.tensors[static_cast<size_t>(at)];
        const int64_t from = begin(t, {place.batch, place.head, 0}, heads);
        Row &out = matrices[{at, from}];
        if (!out.empty()) return out;
        out.resize(static_cast<size_t>(t.dims[2] * t.dims[3]));
        for (int64_t k = 0; k < t.dims[2]; k++)
            for (int64_t j = 0; j < t.dims[3]; j++)
                out[static_cast<size_t>(j * t.dims[2] + k)] =
                    get(run.at[static_cast<size_t>(at)], from + k * t.strides[2] + j * t.strides[3], t.type);
        return out;
    }
    void multiply(const Operation &o, Place place, Row &out) {
        const int64_t heads = graph.tensors[static_cast<size_t>(o.y)].dims[1];
        const int64_t inner = graph.tensors[static_cast<size_t>(o.x)].dims[3];
        const Row &b = matrix(o.b, place, heads);
        Row a(static_cast<size_t>(inner));
        for (int64_t k = 0; k < inner; k++) a[static_cast<size_t>(k)] = number(o.x, place, heads, k);
        for (size_t j = 0; j < out.size(); j++) out[j] = sum(a.data(), b.data() + j * a.size(), inner);
    }
    /* Sums in the configuration's number of parts; in a random number if nondeterministic. */
    float sum(const float *a, const float *b, int64_t n) const {
        const int64_t parts = run.way.varies ? 1 + static_cast<int64_t>(draw(4)) : run.way.parts;
        const int64_t part = (n + parts - 1) / parts;
        float all = 0;
        for (int64_t from = 0; from < n; from += part) {
            float one = 0;
            for (int64_t k = from; k < std::min(n, from + part); k++) one += a[k] * b[k];
            all += one;
        }
        return all;
    }
    void reduce(const Operation &o, Place place, Row &out) const {
        const Tensor &x = graph.tensors[static_cast<size_t>(o.x)];
        const bool most = o.mode == CUDNN_REDUCE_TENSOR_MAX;
        float all = most ? -INFINITY : 0.0f;
        for (int64_t i = 0; i < x.dims[3]; i++) {
            const float one = number(o.x, place, x.dims[1], i);
            if (!most) all += one;
            else if (one > all || one != one) all = one;
            if (most && all != all) break;
        }
        out[0] = all;
    }
    void each(const Operation &o, Place place, Row &out) const {
        const int64_t heads = graph.tensors[static_cast<size_t>(o.y)].dims[1];
        const int64_t index[] = {place.batch, place.head, place.row};
        for (size_t at = 0; at < out.size(); at++) {
            const auto i = static_cast<int64_t>(at);
            if (o.mode == CUDNN_POINTWISE_GEN_INDEX) out[at] = static_cast<float>(o.axis == 3 ? i : index[o.axis]);
            else
                out[at] = apply(o.mode, number(o.x, place, heads, i), o.b < 0 ? 0 : number(o.b, place, heads, i),
                                o.where < 0 ? 0 : number(o.where, place, heads, i));
        }
    }
};

} // namespace

/* The queries are the first operand of the first matmul. */
void run_graph(const Run &run) {
    const Tensor &q = run.graph->tensors[0];
    Runner runner(run);
    if (run.way.workspace > 0) std::memset(run.workspace, 0xff, run.way.workspace);
    for (int64_t batch = 0; batch < q.dims[0]; batch++)
        for (int64_t head = 0; head < q.dims[1]; head++)
            for (int64_t row = 0; row < q.dims[2]; row++) runner.make({batch, head, row});
}

} // namespace weft_emulator
