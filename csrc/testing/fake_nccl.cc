#include "csrc/testing/fake_nccl.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/fake_cuda_hidden.h"

namespace keras_ring::cuda {
namespace fake {
namespace {

enum class Kind { kAllreduce, kReduce, kBroadcast, kExchange };

// What one rank does in a call: of the whole group, for sends and receives.
struct Part {
  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  int dtype = 0;
  int op = 0;
  int root = 0;
  // Of an exchange: one message to or from each peer.
  struct Message {
    uint64_t number;  // among those of the same two ranks and direction
    void* memory;
    size_t bytes;
  };
  std::map<int, Message> sends;
  std::map<int, Message> receives;

  bool Matches(const Part& other) const {
    return kind == other.kind && count == other.count && dtype == other.dtype &&
           op == other.op && root == other.root;
  }
};

// A call, as its ranks come to it.
struct Call {
  std::vector<std::unique_ptr<Part>> parts;
  int arrived = 0;
  int left = 0;
};

// A message on its way: sent and not received.
struct Sent {
  const void* memory;
  size_t bytes;
};

// The ranks of a communicator.
struct Clique {
  explicit Clique(int size) : size(size) {}
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, Call> calls;  // by number
  // By sender, receiver and number.
  std::map<std::tuple<int, int, uint64_t>, Sent> messages;
  int joined = 0;
  std::atomic<bool> aborted{false};
};

struct State {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::atomic<size_t> comms{0};
  std::atomic<uint64_t> ids{0};
};
State& Process() {
  static State* const state = new State();
  return *state;
}

DType DTypeOf(int dtype) {
  switch (dtype) {
    case kNcclInt8:
      return DType::kInt8;
    case kNcclUint8:
      return DType::kUint8;
    case kNcclInt32:
      return DType::kInt32;
    case kNcclInt64:
      return DType::kInt64;
    case kNcclFloat16:
      return DType::kFloat16;
    case kNcclBfloat16:
      return DType::kBfloat16;
    case kNcclFloat64:
      return DType::kFloat64;
    default:
      return DType::kFloat32;
  }
}

ReduceOp OpOf(int op) {
  switch (op) {
    case kNcclProduct:
      return ReduceOp::kProduct;
    case kNcclMax:
      return ReduceOp::kMax;
    case kNcclMin:
      return ReduceOp::kMin;
    default:
      return ReduceOp::kSum;
  }
}

char* AliasOf(const void* memory, size_t bytes) {
  if (bytes == 0) return nullptr;
  return static_cast<char*>(
      Alias(reinterpret_cast<DevicePointer>(memory), bytes));
}

}  // namespace
}  // namespace fake
}  // namespace keras_ring::cuda

// NCCL's object.
namespace keras_ring::cuda {
struct ncclComm {
  ncclComm(std::shared_ptr<fake::Clique> clique, int rank)
      : clique(std::move(clique)), rank(rank) {}
  const std::shared_ptr<fake::Clique> clique;
  const int rank;
  uint64_t calls = 0;
  // Messages to and from each peer.
  std::map<int, uint64_t> sent;
  std::map<int, uint64_t> received;
  // How often it will say that it has not taken a call yet.
  int busy = 0;
};

namespace fake {
namespace {

// One rank's share of a call, on the thread of its stream, once all have come.
// Every rank computes its own result. Returns false if an address is none.
bool Work(const Call& call, int rank, std::vector<char>& result) {
  const Part& own = *call.parts[rank];
  const size_t bytes = own.count * DTypeSize(DTypeOf(own.dtype));
  switch (own.kind) {
    case Kind::kBroadcast: {
      const char* const from = AliasOf(call.parts[own.root]->input, bytes);
      if (from == nullptr) return false;
      result.assign(from, from + bytes);
      return true;
    }
    case Kind::kReduce:
      if (rank != own.root) return true;
      [[fallthrough]];
    case Kind::kAllreduce: {
      // Not in the order of the ranks.
      std::vector<const void*> sources;
      for (auto part = call.parts.rbegin(); part != call.parts.rend(); ++part) {
        sources.push_back(AliasOf((*part)->input, bytes));
        if (sources.back() == nullptr) return false;
      }
      result.resize(bytes);
      FoldArgs fold;
      fold.sources = sources.data();
      fold.num_sources = static_cast<int>(sources.size());
      fold.count = static_cast<int64_t>(own.count);
      fold.output = result.data();
      FindFoldKernel(DTypeOf(own.dtype), OpOf(own.op))(fold);
      return true;
    }
    case Kind::kExchange:
      break;
  }
  return false;
}

bool Store(const Part& own, int rank, const std::vector<char>& result) {
  if (result.empty()) return true;
  if (own.kind == Kind::kReduce && rank != own.root) return true;
  char* const to = AliasOf(own.output, result.size());
  if (to != nullptr) std::memcpy(to, result.data(), result.size());
  return to != nullptr;
}

// Waits on the thread of a stream until `condition` holds; false: aborted.
template <typename Condition>
bool Await(Clique& clique, std::unique_lock<std::mutex>& lock,
           Condition condition) {
  while (!condition()) {
    if (clique.aborted.load()) return false;
    clique.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

// Sends and receives concern two ranks each; the others need not come.
bool RunExchange(const std::shared_ptr<Clique>& clique, int rank,
                 const Part& part) {
  void* const order = &clique->messages;
  Release(order);
  {
    const Hidden hidden;
    const std::lock_guard<std::mutex> lock(clique->mutex);
    for (const auto& [peer, message] : part.sends) {
      clique->messages[{rank, peer, message.number}] = {message.memory,
                                                        message.bytes};
    }
    clique->changed.notify_all();
  }
  for (const auto& [peer, message] : part.receives) {
    const std::tuple<int, int, uint64_t> key{peer, rank, message.number};
    Sent sent;
    {
      const Hidden hidden;
      std::unique_lock<std::mutex> lock(clique->mutex);
      if (!Await(*clique, lock,
                 [&] { return clique->messages.count(key) > 0; })) {
        return true;  // it was aborted
      }
      sent = clique->messages[key];
    }
    Acquire(order);
    const char* const from = AliasOf(sent.memory, sent.bytes);
    char* const to = AliasOf(message.memory, message.bytes);
    if (from == nullptr || to == nullptr || sent.bytes != message.bytes) {
      return false;
    }
    std::memcpy(to, from, sent.bytes);
    Release(order);
    const Hidden hidden;
    const std::lock_guard<std::mutex> lock(clique->mutex);
    clique->messages.erase(key);
    clique->changed.notify_all();
  }
  {
    const Hidden hidden;
    std::unique_lock<std::mutex> lock(clique->mutex);
    const bool received = Await(*clique, lock, [&] {
      for (const auto& [peer, message] : part.sends) {
        if (clique->messages.count({rank, peer, message.number}) > 0) {
          return false;
        }
      }
      return true;
    });
    if (!received) return true;
  }
  Acquire(order);
  return true;
}

// All ranks have read before any of them writes: calls may be in place.
bool RunPart(const std::shared_ptr<Clique>& clique, int rank, uint64_t number,
             const Part& part) {
  void* const order = &clique->calls;
  Release(order);
  Call* call = nullptr;
  {
    const Hidden hidden;
    std::unique_lock<std::mutex> lock(clique->mutex);
    call = &clique->calls[number];
    call->parts.resize(clique->size);
    call->parts[rank] = std::make_unique<Part>(part);
    ++call->arrived;
    clique->changed.notify_all();
    // Ranks that make another call wait for ever.
    const bool met = Await(*clique, lock, [&] {
      if (call->arrived < clique->size) return false;
      for (const auto& other : call->parts) {
        if (!other->Matches(*call->parts[rank])) return false;
      }
      return true;
    });
    if (!met) return true;  // it was aborted
  }
  Acquire(order);
  std::vector<char> result;
  const bool read = Work(*call, rank, result);
  Release(order);
  {
    const Hidden hidden;
    std::unique_lock<std::mutex> lock(clique->mutex);
    ++call->left;
    clique->changed.notify_all();
    if (!Await(*clique, lock, [&] { return call->left >= clique->size; })) {
      return true;
    }
  }
  Acquire(order);
  return read && Store(part, rank, result);
}

// The calls of a thread's group.
struct Group {
  int depth = 0;
  struct Entry {
    NcclComm comm;
    Stream stream;
    Part part;
  };
  std::vector<Entry> entries;
};
thread_local Group group;

void Begin(Group::Entry entry) {
  const auto& clique = entry.comm->clique;
  const int rank = entry.comm->rank;
  if (entry.part.kind != Kind::kExchange) {
    GiveWork(entry.stream,
             [clique, rank, number = entry.comm->calls++, part = entry.part] {
               return RunPart(clique, rank, number, part);
             });
    return;
  }
  for (auto& [peer, message] : entry.part.sends) {
    message.number = entry.comm->sent[peer]++;
  }
  for (auto& [peer, message] : entry.part.receives) {
    message.number = entry.comm->received[peer]++;
  }
  GiveWork(entry.stream, [clique, rank, part = entry.part] {
    return RunExchange(clique, rank, part);
  });
}

NcclCode EndGroup() {
  // Sends and receives of a group are one exchange.
  std::vector<Group::Entry> entries;
  int exchange = -1;
  for (Group::Entry& entry : group.entries) {
    if (entry.part.kind != Kind::kExchange) {
      entries.push_back(std::move(entry));
    } else if (exchange < 0) {
      exchange = static_cast<int>(entries.size());
      entries.push_back(std::move(entry));
    } else {
      entries[exchange].part.sends.merge(entry.part.sends);
      entries[exchange].part.receives.merge(entry.part.receives);
    }
  }
  group.entries.clear();
  for (const Group::Entry& entry : entries) {
    Begin(entry);
    entry.comm->busy = 2;
  }
  return entries.empty() ? kNcclSuccess : kNcclInProgress;
}

NcclCode Add(NcclComm comm, Stream stream, Part part) {
  group.entries.push_back({comm, stream, std::move(part)});
  return group.depth == 0 ? EndGroup() : kNcclSuccess;
}

NcclCode GetVersion(int* version) {
  *version = 22809;
  return kNcclSuccess;
}
NcclCode GetUniqueId(NcclUniqueId* id) {
  const std::string text = "fake " + std::to_string(Process().ids++);
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->bytes, text.data(), text.size());
  return kNcclSuccess;
}
NcclCode CommInitRankConfig(NcclComm* comm, int size, NcclUniqueId id, int rank,
                            NcclConfig* config) {
  if (config->blocking != 0 || rank < 0 || rank >= size) {
    return kNcclInvalidUsage;
  }
  const std::lock_guard<std::mutex> lock(Process().mutex);
  auto& clique = Process().cliques[std::string(id.bytes, sizeof(id.bytes))];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  if (clique->size != size) return kNcclInvalidUsage;
  *comm = new ncclComm(clique, rank);
  ++Process().comms;
  const std::lock_guard<std::mutex> of_clique(clique->mutex);
  ++clique->joined;
  return kNcclInProgress;
}
NcclCode CommFinalize(NcclComm comm) {
  comm->busy = 2;
  return kNcclInProgress;
}
NcclCode CommDestroy(NcclComm comm) {
  delete comm;
  --Process().comms;
  return kNcclSuccess;
}
// Of a rank that aborts, the others notice nothing but that they wait; here
// they go on, as their own aborts would make them.
NcclCode CommAbort(NcclComm comm) {
  comm->clique->aborted.store(true);
  comm->clique->changed.notify_all();
  // NCCL returns once the device has ended what it was doing, and who waits for
  // that has seen its end by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return CommDestroy(comm);
}
NcclCode CommGetAsyncError(NcclComm comm, NcclCode* error) {
  *error = kNcclSuccess;
  const std::lock_guard<std::mutex> lock(comm->clique->mutex);
  if (comm->clique->joined < comm->clique->size || comm->busy > 0) {
    if (comm->busy > 0) --comm->busy;
    *error = kNcclInProgress;
  }
  return kNcclSuccess;
}
NcclCode GroupStart() {
  ++group.depth;
  return kNcclSuccess;
}
NcclCode GroupEnd() {
  if (group.depth == 0) return kNcclInvalidUsage;
  return --group.depth == 0 ? EndGroup() : kNcclSuccess;
}
NcclCode AllReduce(const void* input, void* output, size_t count, int dtype,
                   int op, NcclComm comm, Stream stream) {
  return Add(comm, stream,
             {Kind::kAllreduce, input, output, count, dtype, op, 0, {}, {}});
}
NcclCode Reduce(const void* input, void* output, size_t count, int dtype,
                int op, int root, NcclComm comm, Stream stream) {
  return Add(comm, stream,
             {Kind::kReduce, input, output, count, dtype, op, root, {}, {}});
}
NcclCode Broadcast(const void* input, void* output, size_t count, int dtype,
                   int root, NcclComm comm, Stream stream) {
  return Add(comm, stream,
             {Kind::kBroadcast, input, output, count, dtype, 0, root, {}, {}});
}
NcclCode Send(const void* input, size_t count, int, int peer, NcclComm comm,
              Stream stream) {
  Part part;
  part.kind = Kind::kExchange;
  part.sends[peer] = {0, const_cast<void*>(input), count};
  return Add(comm, stream, std::move(part));
}
NcclCode Recv(void* output, size_t count, int, int peer, NcclComm comm,
              Stream stream) {
  Part part;
  part.kind = Kind::kExchange;
  part.receives[peer] = {0, output, count};
  return Add(comm, stream, std::move(part));
}

const char* ErrorString(NcclCode code) {
  return code == kNcclInvalidUsage ? "invalid usage" : "an error of the fake";
}
const char* LastError(NcclComm) { return ""; }

}  // namespace

size_t NumComms() { return Process().comms.load(); }

}  // namespace fake

const Nccl& FakeNccl() {
  static const Nccl nccl = [] {
    using namespace fake;  // NOLINT(google-build-using-namespace)
    Nccl made;
    // The functions above are named as NCCL's, without "nccl".
#define KR_FAKE(name) made.nccl##name = name
    KR_FAKE(GetVersion);
    KR_FAKE(GetUniqueId);
    KR_FAKE(CommInitRankConfig);
    KR_FAKE(CommFinalize);
    KR_FAKE(CommDestroy);
    KR_FAKE(CommAbort);
    KR_FAKE(CommGetAsyncError);
    KR_FAKE(GroupStart);
    KR_FAKE(GroupEnd);
    KR_FAKE(AllReduce);
    KR_FAKE(Reduce);
    KR_FAKE(Broadcast);
    KR_FAKE(Send);
    KR_FAKE(Recv);
#undef KR_FAKE
    made.ncclGetErrorString = ErrorString;
    made.ncclGetLastError = LastError;
    return made;
  }();
  return nccl;
}

}  // namespace keras_ring::cuda
