#include "csrc/testing/device_arguments.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "csrc/base/round.h"
#include "csrc/base/status.h"

namespace keras_ring {
namespace {

constexpr size_t kAlignment = 256;

void Check(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  KR_CHECK(status.ok());
}

// Calls use(memory, bytes) for each input and output of a call.
template <typename Use>
struct Tensors {
  const int rank;
  Use use;

  void operator()(AllreduceArgs& args) {
    Spans(args.tensors, DTypeSize(args.dtype));
  }
  void operator()(BroadcastArgs& args) { Spans(args.tensors, 1); }
  void operator()(AllgatherArgs& args) {
    const auto& bytes = args.bytes_per_rank;
    if (bytes.empty()) return;
    use(args.input, bytes[rank]);
    use(args.output, std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  }
  void operator()(ReducescatterArgs& args) {
    const auto& counts = args.count_per_rank;
    if (counts.empty()) return;
    const size_t element = DTypeSize(args.dtype);
    use(args.input,
        element * std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    use(args.output, element * counts[rank]);
  }
  void operator()(AlltoallArgs& args) {
    size_t sent = 0;
    size_t received = 0;
    for (int peer = 0; peer < args.size; ++peer) {
      sent += args.bytes(rank, peer);
      received += args.bytes(peer, rank);
    }
    use(args.input, sent);
    use(args.output, received);
  }

  void Spans(std::vector<TensorSpan>& tensors, size_t element) {
    for (TensorSpan& tensor : tensors) {
      use(tensor.input, tensor.count * element);
      use(tensor.output, tensor.count * element);
    }
  }
};

template <typename Use>
void ForEachTensor(CollectiveArgs& args, int rank, Use use) {
  std::visit(Tensors<Use>{rank, use}, args);
}

}  // namespace

DeviceRegion::DeviceRegion(Memory& memory, size_t bytes, size_t skew)
    : memory_(memory), bytes_(bytes), skew_(skew) {
  Result<void*> begin = memory.Allocate(bytes);
  Check(begin.status());
  begin_ = static_cast<char*>(*begin);
}

DeviceRegion::~DeviceRegion() { memory_.Free(begin_); }

char* DeviceRegion::Cut(size_t bytes) {
  char* const cut = begin_ + used_ + skew_;
  used_ += RoundUp(bytes + skew_ + 1, kAlignment);
  KR_CHECK(used_ <= bytes_);
  return cut;
}

DeviceArguments::DeviceArguments(const CollectiveArgs& args, int rank,
                                 DeviceRegion& region)
    : region_(region), there_(args) {
  region.Reset();
  ForEachTensor(there_, rank,
                [this](const void* host, size_t bytes) { Use(host, bytes); });
  for (Piece& piece : pieces_) {
    piece.there = region.Cut(piece.bytes);
    Check(region.memory().Write(piece.there, piece.host, piece.bytes));
  }
  ForEachTensor(there_, rank, [this](auto& pointer, size_t) { Move(pointer); });
}

void DeviceArguments::Use(const void* host, size_t bytes) {
  if (bytes == 0) return;
  char* begin = static_cast<char*>(const_cast<void*>(host));
  char* end = begin + bytes;
  const auto overlaps = [&](const Piece& piece) {
    return piece.host < end && begin < piece.host + piece.bytes;
  };
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    if (!overlaps(*piece)) {
      ++piece;
      continue;
    }
    begin = std::min(begin, piece->host);
    end = std::max(end, piece->host + piece->bytes);
    piece = pieces_.erase(piece);
  }
  pieces_.push_back({begin, static_cast<size_t>(end - begin), nullptr});
}

template <typename Pointer>
void DeviceArguments::Move(Pointer& pointer) const {
  for (const Piece& piece : pieces_) {
    const char* const host = static_cast<const char*>(pointer);
    if (host < piece.host || host >= piece.host + piece.bytes) continue;
    pointer = piece.there + (host - piece.host);
    return;
  }
  pointer = nullptr;  // of no bytes
}

void DeviceArguments::Finish() {
  for (const Piece& piece : pieces_) {
    Check(region_.memory().Read(piece.host, piece.there, piece.bytes));
  }
}

}  // namespace keras_ring
