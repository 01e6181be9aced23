#include "csrc/control/request.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "csrc/control/message_length.h"

namespace keras_ring {
namespace {

std::string ShapeText(const TensorSpec& spec, bool any_rows) {
  std::string text = "[";
  for (size_t i = 0; i < spec.shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += any_rows && i == 0 ? "*" : std::to_string(spec.shape[i]);
  }
  return text + "]";
}

// "float32", or one per tensor of a group.
template <typename Text>
std::string ForEachTensor(const Request& request, Text text) {
  std::string all;
  for (const TensorSpec& spec : request.tensors) {
    if (!all.empty()) all += ", ";
    all += text(spec);
  }
  return all;
}

std::string NumberText(double value) {
  std::ostringstream stream;
  stream.precision(17);
  stream << value;
  return stream.str();
}

// One thing on which ranks may disagree. Checked in the order of kFeatures:
// that two ranks call different operations matters more than their shapes.
struct Feature {
  const char* name;
  std::string (*text)(const Request&);
};

const Feature kFeatures[] = {
    {"operation",
     [](const Request& r) { return std::string(RequestKindName(r.kind)); }},
    {"number of tensors",
     [](const Request& r) { return std::to_string(r.tensors.size()); }},
    {"device",
     [](const Request& r) { return std::string(DeviceKindName(r.device)); }},
    {"dtype",
     [](const Request& r) {
       return ForEachTensor(r, [](const TensorSpec& spec) {
         return std::string(DTypeName(spec.dtype));
       });
     }},
    {"shape",
     [](const Request& r) {
       bool any_rows = TakesAnyRows(r.kind);
       return ForEachTensor(r, [any_rows](const TensorSpec& spec) {
         return ShapeText(spec, any_rows);
       });
     }},
    {"reduce op",
     [](const Request& r) { return std::string(ReduceOpName(r.op)); }},
    {"prescale factor",
     [](const Request& r) { return NumberText(r.prescale); }},
    {"postscale factor",
     [](const Request& r) { return NumberText(r.postscale); }},
    {"compression",
     [](const Request& r) {
       return std::string(CompressionName(r.compression));
     }},
    {"root rank", [](const Request& r) { return std::to_string(r.root); }},
};

// Returns the values that the ranks hold, each with its ranks in the job.
std::map<std::string, std::vector<int32_t>> RanksByValue(
    const std::vector<RequestVariant>& variants, const Feature& feature,
    const RankSet& ranks) {
  std::map<std::string, std::vector<int32_t>> by_value;
  for (const RequestVariant& variant : variants) {
    auto& list = by_value[feature.text(variant.request)];
    for (int32_t rank : variant.ranks) list.push_back(ranks.Global(rank));
  }
  for (auto& [value, list] : by_value) std::sort(list.begin(), list.end());
  return by_value;
}

// The label that all ranks share even when they differ in the operation.
std::string CommonLabel(const std::vector<RequestVariant>& variants) {
  const Request& first = variants.front().request;
  for (const RequestVariant& variant : variants) {
    if (variant.request.kind != first.kind) return "'" + first.name + "'";
  }
  return first.Label();
}

Status Validate(const Request& request, int size, const RankSet& ranks) {
  const std::string label = request.Label();
  const int32_t root = ranks.Local(request.root);
  if (request.kind == RequestKind::kBroadcast && (root < 0 || root >= size)) {
    return InvalidArgumentError(
        label + ": root rank " + std::to_string(request.root) +
        (ranks.is_job()
             ? " is not a rank of this job of size " + std::to_string(size)
             : " is not a member of " + ranks.Text()));
  }
  if (TakesAnyRows(request.kind) ||
      request.kind == RequestKind::kReducescatter) {
    for (const TensorSpec& spec : request.tensors) {
      if (!spec.shape.empty()) continue;
      return InvalidArgumentError(
          label +
          ": a scalar has no first dimension along which it could be joined "
          "or divided; reshape it to [1]");
    }
  }
  if (!IsReduction(request.kind)) return OkStatus();
  const bool adasum = request.op == ReduceOp::kAdasum;
  if (adasum && request.kind == RequestKind::kReducescatter) {
    return InvalidArgumentError(
        label + ": a part of an Adasum needs all of the tensor; allreduce it");
  }
  bool scaled = request.prescale != 1.0 || request.postscale != 1.0;
  for (const TensorSpec& spec : request.tensors) {
    if (!IsReducible(spec.dtype) || (adasum && !IsFloating(spec.dtype))) {
      return InvalidArgumentError(label + ": " + DTypeName(spec.dtype) +
                                  " has no " + ReduceOpName(request.op) +
                                  "; cast it to a number that has one first");
    }
    if (scaled && IsInteger(spec.dtype)) {
      return InvalidArgumentError(
          label +
          ": a prescale or postscale factor needs a floating dtype, "
          "but the tensor is " +
          DTypeName(spec.dtype));
    }
  }
  return OkStatus();
}

// Two NaNs are equal here: ranks that all pass a NaN agree.
bool SameNumber(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

bool SameButForTensors(const Request& a, const Request& b) {
  return a.name == b.name && a.kind == b.kind && a.op == b.op &&
         SameNumber(a.prescale, b.prescale) &&
         SameNumber(a.postscale, b.postscale) &&
         a.compression == b.compression && a.root == b.root &&
         a.device == b.device;
}

template <typename Iterator>
bool HasZero(Iterator begin, Iterator end) {
  return std::find(begin, end, 0) != end;
}

// The product of the dimensions behind the first; INT64_MAX if it is more.
int64_t RowElements(const TensorSpec& spec) {
  if (HasZero(spec.shape.begin() + 1, spec.shape.end())) return 0;
  int64_t count = 1;
  for (size_t i = 1; i < spec.shape.size(); ++i) {
    if (__builtin_mul_overflow(count, spec.shape[i], &count)) return INT64_MAX;
  }
  return count;
}

// Shows only the first of many values.
std::string ListText(const std::vector<int64_t>& values) {
  constexpr size_t kShown = 64;
  std::string text;
  for (size_t i = 0; i < std::min(values.size(), kShown); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(values[i]);
  }
  if (values.size() > kShown) {
    text += ", ... (" + std::to_string(values.size()) + " in all)";
  }
  return "[" + text + "]";
}

// Checks one rank's splits of an alltoall; `rank` is its rank in the job.
Status ValidateSplits(const Request& request, int64_t rows,
                      const std::vector<int64_t>& splits, int32_t rank,
                      int size) {
  // Texts are made for wrong values only: there may be millions of splits.
  const auto error = [&](const std::string& text) {
    return InvalidArgumentError(request.Label() + ": rank " +
                                std::to_string(rank) + text);
  };
  const auto wrong = [&](const std::string& why) {
    return error(" has splits " + ListText(splits) + why);
  };
  if (splits.empty()) {
    if (rows % size == 0) return OkStatus();
    return error(" brings " + std::to_string(rows) +
                 " rows, which cannot be divided evenly among " +
                 std::to_string(size) + " ranks; give splits");
  }
  if (AreLeftOut(splits)) return TooLongError(request);
  if (splits.size() != static_cast<size_t>(size)) {
    return wrong(", but there must be one for each of " + std::to_string(size) +
                 " ranks");
  }
  __int128 sum = 0;
  for (int64_t split : splits) {
    if (split < 0) return wrong(", which must not be negative");
    sum += split;
  }
  if (sum == rows) return OkStatus();
  return wrong(", which must add up to its " + std::to_string(rows) + " rows");
}

// Puts the properties that may differ from rank to rank into rank order.
Status TakeWhatDiffers(const std::vector<RequestVariant>& variants, int size,
                       const RankSet& ranks, Response& agreed) {
  const bool has_splits = agreed.request.kind == RequestKind::kAlltoall;
  const size_t tensors = agreed.request.tensors.size();
  agreed.rows.resize(tensors * size);
  if (has_splits) agreed.splits.resize(size);
  for (const RequestVariant& variant : variants) {
    for (size_t index = 0; index < variant.ranks.size(); ++index) {
      const int32_t rank = variant.ranks[index];
      for (size_t i = 0; i < tensors; ++i) {
        agreed.rows[i * size + rank] = variant.rows[index * tensors + i];
      }
      if (!has_splits) continue;
      KR_RETURN_IF_ERROR(ValidateSplits(variant.request, agreed.rows[rank],
                                        variant.splits[index],
                                        ranks.Global(rank), size));
      agreed.splits[rank] = variant.splits[index];
    }
  }
  return OkStatus();
}

}  // namespace

const char* RequestKindName(RequestKind kind) {
  constexpr const char* kNames[] = {"allreduce", "allgather",     "broadcast",
                                    "barrier",   "reducescatter", "alltoall",
                                    "join"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kNumRequestKinds);
  return kNames[static_cast<int>(kind)];
}

int64_t TensorSpec::num_elements() const {
  // Checked first, since the product of the dimensions before a 0 may overflow.
  if (HasZero(shape.begin(), shape.end())) return 0;
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

int64_t Request::num_bytes() const {
  int64_t bytes = 0;
  for (const TensorSpec& spec : tensors) bytes += spec.num_bytes();
  return bytes;
}

std::string Request::Label() const {
  const bool grouped = tensors.size() > 1;
  return std::string(grouped ? "grouped " : "") + RequestKindName(kind) + " '" +
         name + "'";
}

bool operator==(const Request& a, const Request& b) {
  return SameButForTensors(a, b) && a.splits == b.splits &&
         a.tensors == b.tensors;
}

void Request::Encode(WireWriter& writer) const {
  writer.Text(name);
  writer.Byte(static_cast<uint8_t>(kind));
  writer.Byte(static_cast<uint8_t>(op));
  writer.Double(prescale);
  writer.Double(postscale);
  writer.Byte(static_cast<uint8_t>(compression));
  writer.SignedVarint(root);
  writer.Byte(static_cast<uint8_t>(device));
  writer.Varint(tensors.size());
  for (const TensorSpec& spec : tensors) {
    writer.Byte(static_cast<uint8_t>(spec.dtype));
    writer.Byte(static_cast<uint8_t>(spec.shape.size()));
    for (int64_t dim : spec.shape) writer.Varint(dim);
  }
  if (kind != RequestKind::kAlltoall) return;
  writer.Varint(splits.size());
  for (int64_t split : splits) writer.SignedVarint(split);
}

Request Request::Decode(WireReader& reader) {
  Request request;
  request.name = std::string(reader.Text(kMaxNameBytes));
  uint8_t kind = reader.Byte();
  uint8_t op = reader.Byte();
  request.prescale = reader.Double();
  request.postscale = reader.Double();
  uint8_t compression = reader.Byte();
  int64_t root = reader.SignedVarint();
  uint8_t device = reader.Byte();
  size_t count = reader.Count(/*element_bytes=*/2);
  const bool is_join = kind == static_cast<uint8_t>(RequestKind::kJoin);
  if (kind >= kNumRequestKinds || is_join || !IsReduceOp(op) ||
      !IsCompression(compression) || root < INT32_MIN || root > INT32_MAX ||
      device >= kNumDeviceKinds) {
    reader.Fail();
    return Request();
  }
  request.kind = static_cast<RequestKind>(kind);
  request.op = static_cast<ReduceOp>(op);
  request.compression = static_cast<Compression>(compression);
  request.root = static_cast<int32_t>(root);
  request.device = static_cast<DeviceKind>(device);
  request.tensors.resize(count);
  int64_t total = 0;
  for (TensorSpec& spec : request.tensors) {
    uint8_t dtype = reader.Byte();
    if (!IsDType(dtype)) reader.Fail();
    size_t rank = reader.Byte();
    if (rank > kMaxTensorRank) reader.Fail();
    if (!reader.ok()) return Request();
    spec.dtype = static_cast<DType>(dtype);
    // A product that overflows would make a huge tensor look small. Without
    // its first dimension it must not either: other ranks may bring rows.
    __int128 elements = 1;
    const bool has_rows = TakesAnyRows(request.kind) ||
                          request.kind == RequestKind::kReducescatter;
    bool is_empty = false;
    for (size_t i = 0; i < rank; ++i) {
      uint64_t dim = reader.Varint();
      if (dim > INT64_MAX) reader.Fail();
      if (!reader.ok()) return Request();
      spec.shape.push_back(static_cast<int64_t>(dim));
      if (dim == 0 && i == 0 && has_rows) {
        is_empty = true;
      } else if (elements != 0) {
        elements *= dim;
      }
      if (elements > kMaxElements) reader.Fail();
    }
    if (is_empty) elements = 0;
    if (elements > kMaxElements - total) reader.Fail();
    if (!reader.ok()) return Request();
    total += static_cast<int64_t>(elements);
  }
  bool takes_tensors = request.kind != RequestKind::kBarrier;
  bool takes_one = request.kind == RequestKind::kAlltoall;
  if (takes_one) {
    request.splits.resize(reader.Count(/*element_bytes=*/1));
    for (int64_t& split : request.splits) split = reader.SignedVarint();
  }
  if (request.tensors.empty() == takes_tensors ||
      (takes_one && request.tensors.size() != 1)) {
    reader.Fail();
  }
  return reader.ok() ? request : Request();
}

Request Response::RequestOf(int rank) const {
  Request own = request;
  if (!rows.empty()) {
    const size_t size = rows.size() / own.tensors.size();
    for (size_t i = 0; i < own.tensors.size(); ++i) {
      own.tensors[i].shape.front() = rows[i * size + rank];
    }
  }
  if (!splits.empty()) own.splits = splits[rank];
  return own;
}

RequestVariant Response::VariantOf(const std::vector<int32_t>& ranks) const {
  RequestVariant variant;
  variant.request = request;
  variant.ranks = ranks;
  const size_t count = request.tensors.size();
  for (int32_t rank : ranks) {
    for (size_t i = rank; i < rows.size(); i += rows.size() / count) {
      variant.rows.push_back(rows[i]);
    }
    if (!splits.empty()) variant.splits.push_back(splits[rank]);
  }
  return variant;
}

RequestVariant VariantOf(Request request, std::vector<int32_t> ranks) {
  RequestVariant variant;
  if (TakesAnyRows(request.kind)) {
    std::vector<int64_t> rows;
    for (TensorSpec& spec : request.tensors) {
      // A scalar is found fault with once the ranks are together.
      rows.push_back(spec.shape.empty() ? 0 : spec.shape.front());
      if (!spec.shape.empty()) spec.shape.front() = 0;
    }
    for (size_t index = 0; index < ranks.size(); ++index) {
      variant.rows.insert(variant.rows.end(), rows.begin(), rows.end());
    }
  }
  if (request.kind == RequestKind::kAlltoall) {
    variant.splits.assign(ranks.size(), request.splits);
    request.splits.clear();
  }
  variant.request = std::move(request);
  variant.ranks = std::move(ranks);
  return variant;
}

void AddVariant(std::vector<RequestVariant>& variants, RequestVariant variant) {
  const auto same = std::find_if(
      variants.begin(), variants.end(),
      [&](const RequestVariant& v) { return v.request == variant.request; });
  if (same == variants.end()) {
    variants.push_back(std::move(variant));
    return;
  }
  RequestVariant all;
  const size_t count = variant.request.tensors.size();
  size_t old_index = 0, new_index = 0;
  while (old_index < same->ranks.size() || new_index < variant.ranks.size()) {
    const bool is_old = new_index == variant.ranks.size() ||
                        (old_index < same->ranks.size() &&
                         same->ranks[old_index] < variant.ranks[new_index]);
    RequestVariant& from = is_old ? *same : variant;
    const size_t index = is_old ? old_index++ : new_index++;
    all.ranks.push_back(from.ranks[index]);
    if (!from.rows.empty()) {
      const auto rows = from.rows.begin() + index * count;
      all.rows.insert(all.rows.end(), rows, rows + count);
    }
    if (!from.splits.empty()) {
      all.splits.push_back(std::move(from.splits[index]));
    }
  }
  all.request = std::move(same->request);
  *same = std::move(all);
}

bool IsWhole(const RequestVariant& variant) {
  const Request& request = variant.request;
  const size_t size = variant.ranks.size();
  const bool has_rows = TakesAnyRows(request.kind);
  const bool has_splits = request.kind == RequestKind::kAlltoall;
  if (variant.rows.size() != (has_rows ? size * request.tensors.size() : 0) ||
      variant.splits.size() != (has_splits ? size : 0) ||
      !request.splits.empty()) {
    return false;
  }
  return !has_rows ||
         std::all_of(request.tensors.begin(), request.tensors.end(),
                     [](const TensorSpec& spec) {
                       return spec.shape.empty() || spec.shape.front() == 0;
                     });
}

bool Response::IsOf(const Request& own, int rank) const {
  if (!SameButForTensors(request, own)) return false;
  if (rows.empty()) return request.tensors == own.tensors;
  const size_t count = request.tensors.size();
  if (own.tensors.size() != count) return false;
  const size_t size = rows.size() / count;
  for (size_t i = 0; i < count; ++i) {
    const TensorSpec& all = request.tensors[i];
    const TensorSpec& mine = own.tensors[i];
    if (all.dtype != mine.dtype || all.shape.size() != mine.shape.size() ||
        !std::equal(all.shape.begin() + 1, all.shape.end(),
                    mine.shape.begin() + 1) ||
        mine.shape.front() != rows[i * size + rank]) {
      return false;
    }
  }
  return splits.empty() || splits[rank] == own.splits;
}

std::vector<int64_t> Response::RowsOf(size_t tensor) const {
  const size_t size = rows.size() / request.tensors.size();
  const auto begin = rows.begin() + tensor * size;
  return std::vector<int64_t>(begin, begin + size);
}

bool Response::DependsOn(const JoinedRanks& ranks) const {
  if (rows.empty() && splits.empty()) return false;
  const size_t size = rows.size() / std::max<size_t>(1, request.tensors.size());
  for (int32_t rank : ranks) {
    for (size_t i = rank; i < rows.size(); i += size) {
      if (rows[i] != 0) return true;
    }
    if (!splits.empty() && !splits[rank].empty()) return true;
  }
  return false;
}

Response Response::Without(const JoinedRanks& ranks) const {
  Response rest = *this;
  const size_t size = rows.size() / std::max<size_t>(1, request.tensors.size());
  for (int32_t rank : ranks) {
    for (size_t i = rank; i < rows.size(); i += size) rest.rows[i] = 0;
    if (!splits.empty()) rest.splits[rank].clear();
  }
  return rest;
}

Status CheckJoined(const Response& agreed, const JoinedRanks& joined,
                   const RankSet& ranks) {
  if (joined.empty()) return OkStatus();
  const Request& request = agreed.request;
  const std::string joined_text =
      RanksText(ranks.Global({joined.begin(), joined.end()})) +
      (joined.size() > 1 ? " have joined" : " has joined");
  switch (request.kind) {
    case RequestKind::kBroadcast:
      if (!joined.Contains(ranks.Local(request.root))) return OkStatus();
      return FailedPreconditionError(
          request.Label() + ": the root, rank " + std::to_string(request.root) +
          ", has joined and sends nothing any more; broadcast from a rank that "
          "still takes part, or once join() has returned on all ranks.");
    case RequestKind::kReducescatter:
      return FailedPreconditionError(
          request.Label() + ": " + joined_text +
          ", and a part of the result would be lost; allreduce it, or wait "
          "until join() has returned on all ranks.");
    case RequestKind::kAlltoall: {
      const auto size = static_cast<int32_t>(agreed.splits.size());
      for (int32_t from = 0; from < size; ++from) {
        if (joined.Contains(from)) continue;
        for (const int32_t to : joined) {
          const int64_t rows = agreed.RowsBetween(from, to);
          if (rows == 0) continue;
          return FailedPreconditionError(
              request.Label() + ": rank " + std::to_string(ranks.Global(from)) +
              " has " + std::to_string(rows) + " rows for rank " +
              std::to_string(ranks.Global(to)) +
              ", which has joined and takes nothing any more; give splits that "
              "leave it out, or wait until join() has returned on all ranks.");
        }
      }
      return OkStatus();
    }
    case RequestKind::kAllreduce:
    case RequestKind::kAllgather:
    case RequestKind::kBarrier:
    case RequestKind::kJoin:
      return OkStatus();
  }
  return OkStatus();
}

bool FitsTogether(const Response& agreed) {
  __int128 elements = 0;
  for (size_t i = 0; i < agreed.rows.size(); ++i) {
    const size_t size = agreed.rows.size() / agreed.request.tensors.size();
    const int64_t row = RowElements(agreed.request.tensors[i / size]);
    // Not even a result without elements may have more rows than there are
    // numbers for.
    elements +=
        static_cast<__int128>(agreed.rows[i]) * std::max<int64_t>(row, 1);
    if (row > kMaxElements || elements > kMaxElements) return false;
  }
  return true;
}

Result<Response> Agree(const std::vector<RequestVariant>& variants, int size,
                       const RankSet& ranks) {
  if (variants.size() > 1) {
    for (const Feature& feature : kFeatures) {
      auto values = RanksByValue(variants, feature, ranks);
      if (values.size() == 1) continue;
      std::string text = CommonLabel(variants) +
                         ": the ranks disagree on the " + feature.name + ":";
      for (const auto& [value, holders] : values) {
        text += " " + RanksText(holders) +
                (holders.size() > 1 ? " have " : " has ") + value + ";";
      }
      text.back() = '.';
      return FailedPreconditionError(
          text + " Every rank must pass the same under one name.");
    }
  }
  Response agreed;
  agreed.request = variants.front().request;
  KR_RETURN_IF_ERROR(Validate(agreed.request, size, ranks));
  if (TakesAnyRows(agreed.request.kind)) {
    KR_RETURN_IF_ERROR(TakeWhatDiffers(variants, size, ranks, agreed));
    if (!FitsTogether(agreed)) {
      return InvalidArgumentError(
          agreed.request.Label() +
          ": what the ranks bring together has more elements than can be "
          "counted");
    }
  }
  return agreed;
}

Status CheckName(const std::string& name) {
  if (!name.empty() && name.size() <= kMaxNameBytes) return OkStatus();
  return InvalidArgumentError("the name of a collective must have 1 to " +
                              std::to_string(kMaxNameBytes) +
                              " bytes; received " +
                              std::to_string(name.size()));
}

}  // namespace keras_ring
