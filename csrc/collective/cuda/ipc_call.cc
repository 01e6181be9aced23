#include "csrc/collective/cuda/ipc_call.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "csrc/base/round.h"
#include "csrc/collective/arguments.h"
#include "csrc/collective/cuda/device_calls.h"

namespace keras_ring {
namespace {

using cuda::CopyRow;
using cuda::FoldRow;

constexpr int64_t kVector = cuda::kVectorBytes;

int64_t RoundToVectors(int64_t bytes) { return RoundUp(bytes, kVector); }

// The elements of an array that one rank reduces: whole vectors.
struct Part {
  int64_t begin;
  int64_t end;

  static Part Of(int64_t count, size_t element, int rank, int size) {
    const int64_t part =
        RoundUp(DivideUp(count, size), kVector / static_cast<int64_t>(element));
    return {std::min(rank * part, count), std::min((rank + 1) * part, count)};
  }
};

}  // namespace

Status IpcCall::Run(const CollectiveArgs& args) {
  KR_RETURN_IF_ERROR(AwaitReady(parts_.driver, CallOf(args), stream_));
  KR_RETURN_IF_ERROR(lane_.PayReduced());
  return std::visit([this](const auto& one) { return Do(one); }, args);
}

// --- The calls ---

Status IpcCall::Do(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  const size_t element = DTypeSize(args.dtype);
  std::vector<TensorSpan> small;
  int64_t small_bytes = 0;
  for (const TensorSpan& tensor : args.tensors) {
    const int64_t bytes = tensor.count * static_cast<int64_t>(element);
    // One array is left for the small ones.
    if (bytes >= parts_.sizes.direct_bytes &&
        arrays_.size() + 1 < PeerPage::kMaxArrays) {
      arrays_.push_back({tensor.input, tensor.output, bytes});
    } else if (bytes > 0) {
      small.push_back(tensor);
      small_bytes += RoundToVectors(bytes);
    }
  }
  if (arrays_.empty() && small_bytes <= parts_.sizes.one_shot_bytes) {
    return OneShot(args);
  }
  // The array of the small ones comes first in the staging area.
  Reserve(small_bytes);
  KR_RETURN_IF_ERROR(Stage());
  if (small_bytes > 0) {
    Pack(small, element, /*copies_in=*/true, /*copies_out=*/true);
    arrays_.push_back({staging(), staging(), small_bytes});
  }
  KR_RETURN_IF_ERROR(Show());
  FoldRows folds;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Part part = Part::Of(arrays_[i].bytes / static_cast<int64_t>(element),
                               element, local_rank(), size());
    FoldRow row = {};
    for (int peer = 0; peer < size(); ++peer) {
      KR_ASSIGN_OR_RETURN(char* const input, InputOf(peer, i));
      KR_ASSIGN_OR_RETURN(char* const output, OutputOf(peer, i));
      row.inputs[peer] = input + part.begin * element;
      row.outputs[peer] = output + part.begin * element;
    }
    folds.Add(row, part.end - part.begin, element);
  }
  KR_RETURN_IF_ERROR(Fold(args, folds, size()));
  return End();
}

// Every rank reduces all, from the staging areas of all. Nobody writes to what
// another one has, so the ranks need not wait for each other again.
Status IpcCall::OneShot(const AllreduceArgs& args) {
  const size_t element = DTypeSize(args.dtype);
  int64_t bytes = 0;
  for (const TensorSpan& tensor : args.tensors) {
    bytes += RoundToVectors(tensor.count * static_cast<int64_t>(element));
  }
  // The values of all ranks may be read until the next call of the lane, so
  // results have an area of their own.
  Reserve(bytes);
  const int64_t results = Reserve(args.tensors.size() > 1 ? bytes : 0);
  KR_RETURN_IF_ERROR(lane_.Stage(staged_));
  Pack(args.tensors, element, /*copies_in=*/true, /*copies_out=*/false);
  if (bytes > 0) arrays_.push_back({staging(), nullptr, bytes});
  void* result = staging() + results;
  int64_t count = bytes / static_cast<int64_t>(element);
  if (args.tensors.size() == 1) {
    result = args.tensors.front().output;
    count = args.tensors.front().count;
  } else {
    int64_t at = results;
    for (const TensorSpan& tensor : args.tensors) {
      const int64_t of_tensor = tensor.count * static_cast<int64_t>(element);
      out_.Add(tensor.output, staging() + at, of_tensor);
      at += RoundToVectors(of_tensor);
    }
  }
  KR_RETURN_IF_ERROR(Show());
  FoldRows folds;
  if (bytes > 0) {
    FoldRow row = {};
    for (int peer = 0; peer < size(); ++peer) {
      KR_ASSIGN_OR_RETURN(char* const input, InputOf(peer, 0));
      row.inputs[peer] = input;
    }
    row.outputs[0] = result;
    folds.Add(row, count, element);
  }
  KR_RETURN_IF_ERROR(Fold(args, folds, /*num_outputs=*/1));
  KR_RETURN_IF_ERROR(lane_.RecordReduced());
  lane_.OweReduced();
  return Copy(out_);
}

Status IpcCall::Do(const ReducescatterArgs& args) {
  KR_RETURN_IF_ERROR(CheckReducescatter(args, size()));
  const int64_t element = static_cast<int64_t>(DTypeSize(args.dtype));
  const auto& counts = args.count_per_rank;
  const int64_t before = std::accumulate(
      counts.begin(), counts.begin() + local_rank(), int64_t{0});
  const int64_t total =
      std::accumulate(counts.begin(), counts.end(), int64_t{0});
  arrays_.push_back({args.input, nullptr, total * element});
  KR_RETURN_IF_ERROR(Stage());
  KR_RETURN_IF_ERROR(Show());
  FoldRows folds;
  if (counts[local_rank()] > 0) {
    FoldRow row = {};
    for (int peer = 0; peer < size(); ++peer) {
      KR_ASSIGN_OR_RETURN(char* const input, InputOf(peer, 0));
      row.inputs[peer] = input + before * element;
    }
    row.outputs[0] = args.output;
    folds.Add(row, counts[local_rank()], element);
  }
  KR_RETURN_IF_ERROR(Fold(args, folds, /*num_outputs=*/1));
  return End();
}

Status IpcCall::Do(const AllgatherArgs& args) {
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes_per_rank.size(), size()));
  num_copies_ = size();
  arrays_.push_back({args.input, nullptr,
                     static_cast<int64_t>(args.bytes_per_rank[local_rank()])});
  KR_RETURN_IF_ERROR(Stage());
  KR_RETURN_IF_ERROR(Show());
  CopyRows copies;
  char* to = static_cast<char*>(args.output);
  for (int peer = 0; peer < size(); ++peer) {
    const size_t bytes = args.bytes_per_rank[peer];
    if (bytes == 0) continue;
    KR_ASSIGN_OR_RETURN(char* const from, InputOf(peer, 0));
    copies.Add(to, from, static_cast<int64_t>(bytes));
    to += bytes;
  }
  KR_RETURN_IF_ERROR(Copy(copies));
  return End();
}

Status IpcCall::Do(const AlltoallArgs& args) {
  KR_RETURN_IF_ERROR(CheckAlltoall(args, size()));
  num_copies_ = size();
  const auto sent = [&args](int from, int to) {
    return static_cast<int64_t>(args.bytes(from, to));
  };
  int64_t own = 0;
  for (int to = 0; to < size(); ++to) own += sent(local_rank(), to);
  arrays_.push_back({args.input, nullptr, own});
  KR_RETURN_IF_ERROR(Stage());
  KR_RETURN_IF_ERROR(Show());
  CopyRows copies;
  char* to = static_cast<char*>(args.output);
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t bytes = sent(peer, local_rank());
    if (bytes == 0) continue;
    int64_t before = 0;
    for (int rank = 0; rank < local_rank(); ++rank) before += sent(peer, rank);
    KR_ASSIGN_OR_RETURN(char* const from, InputOf(peer, 0));
    copies.Add(to, from + before, bytes);
    to += bytes;
  }
  KR_RETURN_IF_ERROR(Copy(copies));
  return End();
}

Status IpcCall::Do(const BroadcastArgs& args) {
  KR_RETURN_IF_ERROR(CheckRoot(args, size()));
  num_copies_ = args.tensors.size();
  const bool is_root = args.root == local_rank();
  // Where it cannot show each, the root shows one array with all of them.
  const bool packs = args.tensors.size() > PeerPage::kMaxArrays;
  int64_t packed = 0;
  for (const TensorSpan& tensor : args.tensors) {
    packed += RoundToVectors(tensor.count);
    if (packs) continue;
    arrays_.push_back({tensor.input, nullptr, is_root ? tensor.count : 0});
  }
  if (packs) Reserve(packed);
  KR_RETURN_IF_ERROR(Stage());
  if (packs) {
    Pack(args.tensors, 1, /*copies_in=*/is_root, /*copies_out=*/false);
    arrays_.push_back({staging(), nullptr, packed});
  }
  KR_RETURN_IF_ERROR(Show());
  CopyRows copies;
  int64_t at = 0;
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const TensorSpan& tensor = args.tensors[i];
    if (is_root) {
      copies.Add(tensor.output, tensor.input, tensor.count);
    } else if (tensor.count > 0) {
      KR_ASSIGN_OR_RETURN(char* const from, InputOf(args.root, packs ? 0 : i));
      copies.Add(tensor.output, packs ? from + at : from, tensor.count);
    }
    at += RoundToVectors(tensor.count);
  }
  KR_RETURN_IF_ERROR(Copy(copies));
  return End();
}

// --- Their steps ---

int64_t IpcCall::Reserve(int64_t bytes) {
  const int64_t at = staged_;
  staged_ += RoundToVectors(bytes);
  return at;
}

void IpcCall::Pack(const std::vector<TensorSpan>& small, size_t element,
                   bool copies_in, bool copies_out) {
  char* next = staging();
  for (const TensorSpan& tensor : small) {
    const int64_t bytes = tensor.count * static_cast<int64_t>(element);
    if (copies_in) in_.Add(next, tensor.input, bytes);
    if (copies_out) out_.Add(tensor.output, next, bytes);
    next += RoundToVectors(bytes);
  }
}

// Finds out which arrays the others cannot open, and gives them room.
Status IpcCall::Stage() {
  std::vector<std::pair<Array*, int64_t>> hidden;
  for (Array& array : arrays_) {
    if (array.bytes == 0) continue;
    KR_ASSIGN_OR_RETURN(DevicePlace place, parts_.peers.Show(array.input));
    if (array.output != nullptr && array.output != array.input &&
        place.region != DevicePlace::kNowhere) {
      KR_ASSIGN_OR_RETURN(place, parts_.peers.Show(array.output));
    }
    if (place.region != DevicePlace::kNowhere) continue;
    hidden.emplace_back(&array, Reserve(array.bytes));
  }
  KR_RETURN_IF_ERROR(lane_.Stage(staged_));
  for (const auto& [array, at] : hidden) {
    char* const there = staging() + at;
    in_.Add(there, array->input, array->bytes);
    array->input = there;
    if (array->output == nullptr) continue;
    out_.Add(array->output, there, array->bytes);
    array->output = there;
  }
  return OkStatus();
}

Status IpcCall::Show() {
  const size_t copies = in_.size() + out_.size() + num_copies_;
  KR_RETURN_IF_ERROR(parts_.memory.Begin(
      CallMemory::BytesOf<CopyRow>(copies) + 2 * sizeof(CopyRow) +
      CallMemory::BytesOf<FoldRow>(arrays_.size())));
  KR_RETURN_IF_ERROR(Copy(in_));
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    PeerPage::Array& shown = ArraysOf(local_rank())[i];
    shown = {};
    if (array.bytes == 0) continue;
    KR_ASSIGN_OR_RETURN(shown.input, parts_.peers.Show(array.input));
    if (array.output == nullptr) continue;
    KR_ASSIGN_OR_RETURN(shown.output, parts_.peers.Show(array.output));
  }
  KR_RETURN_IF_ERROR(lane_.RecordWritten());
  KR_RETURN_IF_ERROR(parts_.meet(Phase::kPacked));
  return lane_.AwaitWritten();
}

Status IpcCall::End() {
  KR_RETURN_IF_ERROR(lane_.RecordReduced());
  KR_RETURN_IF_ERROR(parts_.meet(Phase::kReduced));
  KR_RETURN_IF_ERROR(lane_.AwaitReduced());
  return Copy(out_);
}

Result<char*> IpcCall::InputOf(int peer, size_t array) {
  if (peer == local_rank()) {
    return static_cast<char*>(const_cast<void*>(arrays_[array].input));
  }
  return parts_.peers.Open(peer, ArraysOf(peer)[array].input);
}

Result<char*> IpcCall::OutputOf(int peer, size_t array) {
  if (peer == local_rank()) return static_cast<char*>(arrays_[array].output);
  return parts_.peers.Open(peer, ArraysOf(peer)[array].output);
}

Status IpcCall::Fold(const Reduction& reduction, const FoldRows& folds,
                     int num_outputs) {
  return folds.Launch(parts_.kernels, parts_.memory, stream_, reduction, size(),
                      num_outputs);
}

Status IpcCall::Copy(const CopyRows& copies) {
  return copies.Launch(parts_.kernels, parts_.memory, stream_);
}

}  // namespace keras_ring
