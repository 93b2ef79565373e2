/* collective.cpp: see collective.h. For every operation, ranks send each other the needed data and add it themselves;
 * each chunk of a sum starts at another rank, as in rings. Each message starts with a header of its operation, so that
 * ranks detect different calls. Nothing is written before all data has arrived. */
#include <cstring>

#include "collective.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace weft_emulator {
namespace {

struct Header {
    Kind kind;
    uint32_t type;
    uint64_t bytes;
};

struct Message {
    Header header;
    const char *from; /* of a sent one */
    std::vector<char> got;
    uint64_t done = 0; /* bytes, including the header */
    uint64_t size() const {
        return sizeof(Header) + header.bytes;
    }
};

struct Part { /* one operation of the running group */
    Asked asked;
    std::vector<Message> out, in; /* by rank; empty header: no message */
};

template <typename T> T add_two(T a, T b, ncclRedOp_t op) {
    return op == ncclMax    ? (a > b ? a : b)
           : op == ncclMin  ? (a < b ? a : b)
           : op == ncclProd ? static_cast<T>(a * b)
                            : static_cast<T>(a + b);
}
template <typename T> void add(char *sum, const char *more, size_t n, ncclRedOp_t op) {
    for (size_t i = 0; i < n; i++) {
        T a, b;
        std::memcpy(&a, sum + i * sizeof(T), sizeof(T));
        std::memcpy(&b, more + i * sizeof(T), sizeof(T));
        a = add_two(a, b, op);
        std::memcpy(sum + i * sizeof(T), &a, sizeof(T));
    }
}
void add_bf16(char *sum, const char *more, size_t n, ncclRedOp_t op) {
    for (size_t i = 0; i < n; i++) {
        unsigned short a, b;
        std::memcpy(&a, sum + 2 * i, 2);
        std::memcpy(&b, more + 2 * i, 2);
        a = emulator_to_bf16(add_two(emulator_from_bf16(a), emulator_from_bf16(b), op));
        std::memcpy(sum + 2 * i, &a, 2);
    }
}
void add_f16(char *sum, const char *more, size_t n, ncclRedOp_t op) {
    for (size_t i = 0; i < n; i++) {
        unsigned short a, b;
        std::memcpy(&a, sum + 2 * i, 2);
        std::memcpy(&b, more + 2 * i, 2);
        a = emulator_to_f16(add_two(emulator_from_f16(a), emulator_from_f16(b), op));
        std::memcpy(sum + 2 * i, &a, 2);
    }
}
void add_any(char *sum, const char *more, size_t n, const Asked &asked) {
    switch (asked.type) {
    case ncclFloat32: return add<float>(sum, more, n, asked.op);
    case ncclFloat64: return add<double>(sum, more, n, asked.op);
    case ncclBfloat16: return add_bf16(sum, more, n, asked.op);
    case ncclFloat16: return add_f16(sum, more, n, asked.op);
    case ncclInt32: return add<int32_t>(sum, more, n, asked.op);
    case ncclInt64: return add<int64_t>(sum, more, n, asked.op);
    case ncclUint64: return add<uint64_t>(sum, more, n, asked.op);
    default: fault("%s of type %d", name_of(asked.kind), asked.type);
    }
}

/* Adds the elements [from, to) of all ranks, starting with rank `first`. */
void add_piece(char *out, const std::vector<Message> &in, size_t from, size_t to, size_t first, const Asked &asked) {
    const size_t bytes = bytes_of(asked.type), ranks = in.size();
    std::memcpy(out + from * bytes, in[first].got.data() + from * bytes, (to - from) * bytes);
    for (size_t i = 1; i < ranks; i++)
        add_any(out + from * bytes, in[(first + i) % ranks].got.data() + from * bytes, to - from, asked);
}

/* A group of operations in flight. */
struct Run {
    PartyRef party;
    std::vector<Part> parts;
    bool begun = false;

    int ranks() const {
        return party->meeting.ranks;
    }
    int me() const {
        return party->meeting.rank;
    }
    size_t row(const Asked &a) const {
        return a.n * bytes_of(a.type);
    }

    bool sends_to(const Asked &a, int rank) const {
        if (a.kind == Kind::PAIR) return a.sends && rank == a.peer;
        return a.kind != Kind::BROADCAST || a.peer == me();
    }
    bool receives_from(const Asked &a, int rank) const {
        if (a.kind == Kind::PAIR) return !a.sends && rank == a.peer;
        return a.kind != Kind::BROADCAST || rank == a.peer;
    }
    const char *source(const Asked &a, int rank) const {
        const bool rows = a.kind == Kind::REDUCE_SCATTER || a.kind == Kind::ALL_TO_ALL;
        return rows ? a.from + static_cast<size_t>(rank) * row(a) : a.from;
    }
    void begin() {
        for (Part &part : parts) {
            const Asked &a = part.asked;
            const Header header = {a.kind, static_cast<uint32_t>(a.type), row(a)};
            part.out.resize(static_cast<size_t>(ranks()));
            part.in.resize(static_cast<size_t>(ranks()));
            for (int r = 0; r < ranks(); r++) {
                Message &out = part.out[static_cast<size_t>(r)], &in = part.in[static_cast<size_t>(r)];
                out.header = in.header = header;
                out.from = source(a, r);
                in.got.resize(row(a));
                if (!sends_to(a, r)) out.done = out.size();
                if (!receives_from(a, r)) in.done = in.size();
            }
        }
        begun = true;
    }

    bool push(Message &m, int to) {
        const uint64_t before = m.done;
        if (m.done < sizeof(Header))
            m.done +=
                party->meeting.send(to, reinterpret_cast<const char *>(&m.header) + m.done, sizeof(Header) - m.done);
        if (m.done >= sizeof(Header)) push_bytes(m, to);
        return m.done != before;
    }
    /* Sends until the channel is full. */
    void push_bytes(Message &m, int to) {
        char piece[4096]; /* device memory is accessed here, not in a system call */
        uint64_t n = sizeof piece, sent = n;
        while (sent == n && m.done < m.size()) {
            const uint64_t at = m.done - sizeof(Header);
            n = std::min<uint64_t>(sizeof piece, m.header.bytes - at);
            std::memcpy(piece, m.from + at, n);
            sent = party->meeting.send(to, piece, n);
            m.done += sent;
        }
    }

    bool pull(Message &m, int from, const Asked &asked) {
        const uint64_t before = m.done;
        if (m.done < sizeof(Header)) {
            Header came;
            if (party->meeting.receive(from, reinterpret_cast<char *>(&came), sizeof came) != sizeof came) return false;
            m.done = sizeof came;
            if (came.kind != m.header.kind || came.type != m.header.type || came.bytes != m.header.bytes)
                fault("rank %d runs %s of %llu bytes of type %d, and rank %d %s of %llu bytes of type %d", me(),
                      name_of(asked.kind), static_cast<unsigned long long>(m.header.bytes),
                      static_cast<int>(m.header.type), from, name_of(came.kind),
                      static_cast<unsigned long long>(came.bytes), static_cast<int>(came.type));
        }
        if (m.done < m.size())
            m.done += party->meeting.receive(from, m.got.data() + m.done - sizeof(Header), m.size() - m.done);
        return m.done != before;
    }

    /* Between two ranks messages follow the order of their operations. */
    bool exchange(bool *whole_of_it) {
        bool moved = false;
        *whole_of_it = true;
        for (int r = 0; r < ranks(); r++) {
            bool first_out = true, first_in = true;
            for (Part &part : parts) {
                Message &out = part.out[static_cast<size_t>(r)], &in = part.in[static_cast<size_t>(r)];
                if (first_out && out.done < out.size()) moved |= push(out, r);
                if (first_in && in.done < in.size()) moved |= pull(in, r, part.asked);
                first_out = first_out && out.done == out.size();
                first_in = first_in && in.done == in.size();
            }
            *whole_of_it = *whole_of_it && first_out && first_in;
        }
        return moved;
    }

    void write(const Part &part) {
        const Asked &a = part.asked;
        const size_t n = static_cast<size_t>(ranks());
        if (a.kind == Kind::ALL_REDUCE) {
            for (size_t piece = 0; piece < n; piece++)
                add_piece(a.to, part.in, a.n * piece / n, a.n * (piece + 1) / n, (piece + 1) % n, a);
        } else if (a.kind == Kind::REDUCE_SCATTER) {
            add_piece(a.to, part.in, 0, a.n, (static_cast<size_t>(me()) + 1) % n, a);
        } else if (a.kind == Kind::ALL_GATHER || a.kind == Kind::ALL_TO_ALL) {
            for (size_t r = 0; r < n; r++) std::memcpy(a.to + r * row(a), part.in[r].got.data(), row(a));
        } else if (a.kind == Kind::BROADCAST || !a.sends) {
            std::memcpy(a.to, part.in[static_cast<size_t>(a.peer)].got.data(), row(a));
        }
    }

    bool waits_for(int rank) const {
        for (const Part &part : parts) {
            const Message &out = part.out[static_cast<size_t>(rank)], &in = part.in[static_cast<size_t>(rank)];
            if (out.done < out.size() || in.done < in.size()) return true;
        }
        return false;
    }
    int who_is_gone() {
        for (int r = 0; r < ranks(); r++)
            if (waits_for(r) && !party->meeting.alive(r)) return r;
        return -1;
    }
    /* A required rank is gone: queries return the error, and the stream keeps waiting. */
    void tell_gone(int rank) {
        if (party->state != ncclSuccess) return;
        party->state = ncclRemoteError;
        party->said = "rank " + std::to_string(rank) + " has ended while rank " + std::to_string(me()) +
                      " waits for it";
    }

    Step go_on() {
        bool complete = false;
        if (party->aborted) return leave();
        if (!begun) {
            if (party->busy) return Step::IDLE;
            party->busy = true;
            begin();
        }
        bool moved = exchange(&complete);
        if (!moved && !complete) {
            const int gone = who_is_gone(); /* data sent before its exit has arrived by now */
            moved = gone >= 0 && exchange(&complete);
            if (gone >= 0 && !moved) tell_gone(gone);
        }
        if (complete) {
            for (const Part &part : parts) write(part);
            return leave();
        }
        return moved ? Step::MOVED : Step::IDLE;
    }
    Step leave() {
        if (begun) party->busy = false;
        return Step::DONE;
    }
};

} // namespace

const char *name_of(Kind kind) {
    static const char *const names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                        "ncclBroadcast", "ncclAlltoAll",      "ncclSend and ncclRecv"};
    return names[static_cast<uint32_t>(kind)];
}

size_t bytes_of(ncclDataType_t type) {
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return static_cast<unsigned>(type) < 10 ? bytes[type] : 0;
}

Maker collective(const PartyRef &party, const std::vector<Asked> &asked) {
    return [party, asked]() -> Work {
        const auto run = std::make_shared<Run>();
        run->party = party;
        for (const Asked &a : asked) run->parts.push_back({a, {}, {}});
        return [run] { return run->go_on(); };
    };
}

} // namespace weft_emulator
