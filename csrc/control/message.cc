#include "csrc/control/message.h"

#include <algorithm>
#include <iterator>

#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

// In the order of the alternatives of Message: the first byte on the wire.
const char* const kMessageNames[] = {
    "Ready", "Waiting", "Leave", "Decision",     "Abort",      "Ping",
    "Join",  "Bye",     "Ask",   "RankActivity", "ClockQuery", "ClockReply"};
static_assert(std::size(kMessageNames) == std::variant_size_v<Message>);

// Ascending numbers as runs (gap, length): the steady state of training, where
// all of a model's slots are ready together, is one run of three bytes.
void EncodeAscending(WireWriter& writer, const std::vector<uint64_t>& values) {
  writer.Varint(values.size());
  uint64_t next = 0;
  for (size_t i = 0; i < values.size();) {
    size_t end = i + 1;
    while (end < values.size() && values[end] == values[end - 1] + 1) ++end;
    writer.Varint(values[i] - next);
    writer.Varint(end - i);
    next = values[end - 1] + 1;
    i = end;
  }
}

// A run may stand for many numbers, so the count is bounded by itself: in all
// of a message.
constexpr size_t kMaxNumbers = 1 << 22;

std::vector<uint64_t> DecodeAscending(WireReader& reader,
                                      uint64_t limit = kMaxNumbers) {
  std::vector<uint64_t> values;
  uint64_t count = reader.Varint();
  if (count > limit) reader.Fail();
  uint64_t next = 0;
  while (reader.ok() && values.size() < count) {
    uint64_t gap = reader.Varint();
    uint64_t length = reader.Varint();
    if (length == 0 || length > count - values.size() ||
        gap > UINT64_MAX - next || length > UINT64_MAX - next - gap) {
      reader.Fail();
      break;
    }
    next += gap;
    for (uint64_t i = 0; i < length; ++i) values.push_back(next++);
  }
  return values;
}

// Nanoseconds of clocks and between them. Sums of a few of them do not
// overflow.
constexpr int64_t kMaxNanoseconds = int64_t{1} << 60;

int64_t DecodeNanoseconds(WireReader& reader) {
  const int64_t value = reader.SignedVarint();
  if (value > kMaxNanoseconds || value < -kMaxNanoseconds) {
    reader.Fail();
    return 0;
  }
  return value;
}

void EncodeRanks(WireWriter& writer, const std::vector<int32_t>& ranks) {
  EncodeAscending(writer, std::vector<uint64_t>(ranks.begin(), ranks.end()));
}

std::vector<int32_t> DecodeRanks(WireReader& reader, int size) {
  std::vector<uint64_t> values = DecodeAscending(reader, size);
  if (values.empty() || values.back() >= static_cast<uint64_t>(size)) {
    reader.Fail();
    return {};
  }
  return std::vector<int32_t>(values.begin(), values.end());
}

int32_t DecodeRank(WireReader& reader, int size) {
  const uint64_t rank = reader.Varint();
  if (rank >= static_cast<uint64_t>(size)) reader.Fail();
  return static_cast<int32_t>(rank);
}

// No tensor waits for longer: 30 years.
constexpr uint64_t kMaxMicroseconds = uint64_t{1} << 50;

void EncodeDuration(WireWriter& writer, Duration duration) {
  const int64_t count =
      std::chrono::floor<std::chrono::microseconds>(duration).count();
  writer.Varint(std::min(static_cast<uint64_t>(std::max<int64_t>(count, 0)),
                         kMaxMicroseconds));
}

std::chrono::microseconds DecodeDuration(WireReader& reader) {
  const uint64_t count = reader.Varint();
  if (count <= kMaxMicroseconds) return std::chrono::microseconds(count);
  reader.Fail();
  return std::chrono::microseconds(0);
}

void EncodeLastReady(WireWriter& writer, const LastReady& last) {
  EncodeDuration(writer, last.late);
  if (last.rank != LastReady::kNone) writer.Varint(last.rank);
}

LastReady DecodeLastReady(WireReader& reader, int size) {
  LastReady last;
  last.late = DecodeDuration(reader);
  if (last.late.count() > 0) last.rank = DecodeRank(reader, size);
  return last;
}

// Texts about many ranks and tensors may exceed the reader's limit.
void EncodeText(WireWriter& writer, std::string_view text) {
  writer.Text(text.substr(0, kMaxTextBytes));
}

void EncodeStatus(WireWriter& writer, const Status& status) {
  writer.Byte(static_cast<uint8_t>(status.code()));
  EncodeText(writer, status.message());
}

Status DecodeStatus(WireReader& reader) {
  const StatusCode code = StatusCodeOf(reader.Byte());
  std::string text(reader.Text(kMaxTextBytes));
  // No message that carries a status brings good news.
  return Status(code == StatusCode::kOk ? StatusCode::kInternal : code,
                std::move(text));
}

void Encode(WireWriter& writer, const ReadyMessage& message) {
  writer.Varint(message.sequence);
  EncodeLastReady(writer, message.last);
  EncodeAscending(writer, message.slots);
  writer.Varint(message.uncached.size());
  for (const std::vector<RequestVariant>& variants : message.uncached) {
    writer.Varint(variants.size());
    for (const RequestVariant& variant : variants) {
      variant.request.Encode(writer);
      EncodeRanks(writer, variant.ranks);
      for (int64_t rows : variant.rows) writer.Varint(rows);
      for (const std::vector<int64_t>& splits : variant.splits) {
        writer.Varint(splits.size());
        for (int64_t split : splits) writer.SignedVarint(split);
      }
    }
  }
}

int64_t DecodeRows(WireReader& reader) {
  const uint64_t rows = reader.Varint();
  if (rows > INT64_MAX) reader.Fail();
  return static_cast<int64_t>(rows);
}

void DecodeWhatDiffers(WireReader& reader, RequestVariant& variant) {
  if (!reader.ok() || !TakesAnyRows(variant.request.kind)) return;
  const size_t count = variant.ranks.size() * variant.request.tensors.size();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    variant.rows.push_back(DecodeRows(reader));
  }
  if (variant.request.kind != RequestKind::kAlltoall) return;
  for (size_t i = 0; i < variant.ranks.size() && reader.ok(); ++i) {
    variant.splits.emplace_back(reader.Count(/*element_bytes=*/1));
    for (int64_t& split : variant.splits.back()) split = reader.SignedVarint();
  }
}

ReadyMessage DecodeReady(WireReader& reader, int size) {
  ReadyMessage message;
  message.sequence = reader.Varint();
  message.last = DecodeLastReady(reader, size);
  message.slots = DecodeAscending(reader);
  message.uncached.resize(reader.Count(/*element_bytes=*/1));
  for (std::vector<RequestVariant>& variants : message.uncached) {
    size_t count = reader.Count(/*element_bytes=*/1);
    if (count == 0) reader.Fail();
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      RequestVariant variant;
      variant.request = Request::Decode(reader);
      variant.ranks = DecodeRanks(reader, size);
      DecodeWhatDiffers(reader, variant);
      if (!IsWhole(variant)) reader.Fail();
      if (i > 0 && variant.request.name != variants[0].request.name) {
        reader.Fail();
      }
      variants.push_back(std::move(variant));
    }
    if (!reader.ok()) break;
  }
  return message;
}

void Encode(WireWriter& writer, const WaitingMessage& message) {
  writer.Varint(message.sequence);
  writer.Varint(message.waiting.size());
  for (const WaitingMessage::Waiting& waiting : message.waiting) {
    writer.Text(waiting.label);
    writer.Text(waiting.name);
    EncodeRanks(writer, waiting.ranks);
    EncodeDuration(writer, waiting.since_first);
    EncodeDuration(writer, waiting.since_last);
  }
}

WaitingMessage DecodeWaiting(WireReader& reader, int size) {
  WaitingMessage message;
  message.sequence = reader.Varint();
  message.waiting.resize(reader.Count(/*element_bytes=*/5));
  for (WaitingMessage::Waiting& waiting : message.waiting) {
    waiting.label = std::string(reader.Text(kMaxNameBytes + 64));
    waiting.name = std::string(reader.Text(kMaxNameBytes));
    waiting.ranks = DecodeRanks(reader, size);
    waiting.since_first = DecodeDuration(reader);
    waiting.since_last = DecodeDuration(reader);
    if (waiting.since_last > waiting.since_first) reader.Fail();
    if (!reader.ok()) break;
  }
  return message;
}

void Encode(WireWriter& writer, const LeaveMessage& message) {
  writer.Varint(message.rank);
  EncodeText(writer, message.reason);
}

LeaveMessage DecodeLeave(WireReader& reader, int size) {
  LeaveMessage message;
  message.rank = DecodeRank(reader, size);
  message.reason = std::string(reader.Text(kMaxTextBytes));
  return message;
}

void EncodeAgreed(WireWriter& writer, const Response& agreed) {
  agreed.request.Encode(writer);
  for (int64_t rows : agreed.rows) writer.Varint(rows);
  for (const std::vector<int64_t>& splits : agreed.splits) {
    writer.Varint(splits.size());
    for (int64_t split : splits) writer.Varint(split);
  }
}

// Reads the splits of a rank that contributes `rows` rows.
std::vector<int64_t> DecodeSplits(WireReader& reader, int64_t rows, int size) {
  std::vector<int64_t> splits(reader.Count(/*element_bytes=*/1));
  __int128 sum = 0;
  for (int64_t& split : splits) sum += split = DecodeRows(reader);
  const bool whole =
      splits.empty()
          ? rows % size == 0
          : splits.size() == static_cast<size_t>(size) && sum == rows;
  if (!whole) reader.Fail();
  return splits;
}

std::shared_ptr<const Response> DecodeAgreed(WireReader& reader, int size) {
  auto agreed = std::make_shared<Response>();
  agreed->request = Request::Decode(reader);
  if (!reader.ok()) return agreed;
  if (!TakesAnyRows(agreed->request.kind)) return agreed;
  for (const TensorSpec& spec : agreed->request.tensors) {
    if (spec.shape.empty()) reader.Fail();
    for (int rank = 0; rank < size && reader.ok(); ++rank) {
      agreed->rows.push_back(DecodeRows(reader));
    }
  }
  if (agreed->request.kind == RequestKind::kAlltoall) {
    for (int rank = 0; rank < size && reader.ok(); ++rank) {
      agreed->splits.push_back(DecodeSplits(reader, agreed->rows[rank], size));
    }
  }
  if (reader.ok() && !FitsTogether(*agreed)) reader.Fail();
  return agreed;
}

void Encode(WireWriter& writer, const ExecuteDecision& decision) {
  EncodeLastReady(writer, decision.last);
  EncodeAscending(writer, decision.slots);
  writer.Varint(decision.uncached.size());
  for (const auto& agreed : decision.uncached) EncodeAgreed(writer, *agreed);
}

// `numbers`: how many there may still be in the message.
ExecuteDecision DecodeExecute(WireReader& reader, int size, size_t& numbers) {
  ExecuteDecision decision;
  decision.last = DecodeLastReady(reader, size);
  decision.slots = DecodeAscending(reader, numbers);
  numbers -= decision.slots.size();
  const size_t count = reader.Count(/*element_bytes=*/20);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    decision.uncached.push_back(DecodeAgreed(reader, size));
  }
  if (decision.slots.empty() && decision.uncached.empty()) reader.Fail();
  return decision;
}

void Encode(WireWriter& writer, const FailDecision& decision) {
  writer.Varint(decision.names.size());
  for (const std::string& name : decision.names) writer.Text(name);
  EncodeStatus(writer, decision.status);
}

FailDecision DecodeFail(WireReader& reader) {
  FailDecision decision;
  const size_t count = reader.Count(/*element_bytes=*/1);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    decision.names.emplace_back(reader.Text(kMaxNameBytes));
  }
  decision.status = DecodeStatus(reader);
  return decision;
}

void Encode(WireWriter& writer, const EndDecision& decision) {
  EncodeStatus(writer, decision.status);
}

void Encode(WireWriter& writer, const PlanDecision& decision) {
  writer.Varint(decision.plan.size());
  for (const auto& bucket : decision.plan) EncodeAscending(writer, bucket);
}

PlanDecision DecodePlan(WireReader& reader, size_t& numbers) {
  PlanDecision decision;
  const size_t count = reader.Count(/*element_bytes=*/1);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    decision.plan.push_back(DecodeAscending(reader, numbers));
    numbers -= decision.plan.back().size();
  }
  return decision;
}

void Encode(WireWriter& writer, const JoinDecision& decision) {
  EncodeRanks(writer, decision.ranks);
}

void Encode(WireWriter& writer, const TuneDecision& decision) {
  writer.Byte(static_cast<uint8_t>(decision.tunable));
  writer.Varint(decision.value);
}

TuneDecision DecodeTune(WireReader& reader) {
  TuneDecision decision;
  const uint8_t tunable = reader.Byte();
  const uint64_t value = reader.Varint();
  if (tunable >= kNumTunables || value > kMaxTunedValue) {
    reader.Fail();
    return decision;
  }
  decision.tunable = static_cast<Tunable>(tunable);
  decision.value = static_cast<int64_t>(value);
  return decision;
}

void Encode(WireWriter& writer, const ReconfigureDecision& decision) {
  writer.Varint(decision.generation);
}

Decision DecodeDecision(WireReader& reader, int size, size_t& numbers) {
  switch (reader.Byte()) {
    case 0:
      return DecodeExecute(reader, size, numbers);
    case 1:
      return DecodeFail(reader);
    case 2:
      return EndDecision{DecodeStatus(reader)};
    case 3:
      return DecodePlan(reader, numbers);
    case 4:
      return JoinDecision{DecodeRanks(reader, size)};
    case 5:
      return DecodeTune(reader);
    case 6:
      return ReconfigureDecision{reader.Varint()};
  }
  static_assert(std::variant_size_v<Decision> == 7);
  reader.Fail();
  return Decision();
}

void Encode(WireWriter& writer, const DecisionMessage& message) {
  writer.Varint(message.decisions.size());
  for (const Decision& decision : message.decisions) {
    writer.Byte(static_cast<uint8_t>(decision.index()));
    std::visit([&writer](const auto& one) { Encode(writer, one); }, decision);
  }
}

DecisionMessage DecodeDecisions(WireReader& reader, int size) {
  DecisionMessage message;
  size_t count = reader.Count(/*element_bytes=*/2);
  size_t numbers = kMaxNumbers;
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    message.decisions.push_back(DecodeDecision(reader, size, numbers));
  }
  return message;
}

void Encode(WireWriter& writer, const AbortMessage& message) {
  EncodeStatus(writer, message.cause);
}

void Encode(WireWriter&, const PingMessage&) {}

void Encode(WireWriter& writer, const JoinMessage& message) {
  EncodeRanks(writer, message.ranks);
}

void Encode(WireWriter&, const ByeMessage&) {}

void EncodeNames(WireWriter& writer, const std::vector<std::string>& names) {
  writer.Varint(names.size());
  for (const std::string& name : names) writer.Text(name);
}

std::vector<std::string> DecodeNames(WireReader& reader) {
  std::vector<std::string> names;
  const size_t count = reader.Count(/*element_bytes=*/1);
  if (count > kMaxActivityNames) reader.Fail();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    names.emplace_back(reader.Text(kMaxNameBytes));
  }
  return names;
}

void Encode(WireWriter& writer, const StallQuery& message) {
  writer.Varint(message.question);
  EncodeRanks(writer, message.ranks);
  EncodeNames(writer, message.awaits);
}

StallQuery DecodeAsk(WireReader& reader, int size) {
  StallQuery message;
  message.question = reader.Varint();
  message.ranks = DecodeRanks(reader, size);
  message.awaits = DecodeNames(reader);
  return message;
}

void Encode(WireWriter& writer, const ActivityReply& message) {
  writer.Varint(message.question);
  writer.Varint(message.rank);
  writer.Text(message.activity.text);
  EncodeNames(writer, message.activity.waits);
  writer.Varint(message.activity.knows.size());
  for (bool knows : message.activity.knows) writer.Byte(knows ? 1 : 0);
}

ActivityReply DecodeDoing(WireReader& reader, int size) {
  ActivityReply message;
  message.question = reader.Varint();
  message.rank = DecodeRank(reader, size);
  message.activity.text = std::string(reader.Text(kMaxActivityBytes));
  message.activity.waits = DecodeNames(reader);
  const size_t count = reader.Count(/*element_bytes=*/1);
  if (count > kMaxActivityNames) reader.Fail();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    const uint8_t knows = reader.Byte();
    if (knows > 1) reader.Fail();
    message.activity.knows.push_back(knows == 1);
  }
  return message;
}

void Encode(WireWriter& writer, const ClockQuery& message) {
  writer.SignedVarint(message.asked_ns);
}

void Encode(WireWriter& writer, const ClockReply& message) {
  writer.SignedVarint(message.asked_ns);
  writer.SignedVarint(message.answered_ns);
  writer.Byte(message.known ? 1 : 0);
  writer.SignedVarint(message.offset_ns);
  writer.SignedVarint(message.error_ns);
}

ClockReply DecodeClockReply(WireReader& reader) {
  ClockReply message;
  message.asked_ns = DecodeNanoseconds(reader);
  message.answered_ns = DecodeNanoseconds(reader);
  const uint8_t known = reader.Byte();
  if (known > 1) reader.Fail();
  message.known = known == 1;
  message.offset_ns = DecodeNanoseconds(reader);
  message.error_ns = DecodeNanoseconds(reader);
  if (message.error_ns < 0) reader.Fail();
  return message;
}

Message DecodeBody(WireReader& reader, uint8_t type, int size) {
  switch (type) {
    case 0:
      return DecodeReady(reader, size);
    case 1:
      return DecodeWaiting(reader, size);
    case 2:
      return DecodeLeave(reader, size);
    case 3:
      return DecodeDecisions(reader, size);
    case 4:
      return AbortMessage{DecodeStatus(reader)};
    case 5:
      return PingMessage{};
    case 6:
      return JoinMessage{DecodeRanks(reader, size)};
    case 7:
      return ByeMessage{};
    case 8:
      return DecodeAsk(reader, size);
    case 9:
      return DecodeDoing(reader, size);
    case 10:
      return ClockQuery{DecodeNanoseconds(reader)};
    case 11:
      return DecodeClockReply(reader);
  }
  static_assert(std::variant_size_v<Message> == 12);
  reader.Fail();
  return Message();
}

}  // namespace

std::string EncodeMessage(const Message& message) {
  WireWriter writer;
  writer.Byte(static_cast<uint8_t>(message.index()));
  std::visit([&writer](const auto& body) { Encode(writer, body); }, message);
  return writer.Take();
}

Result<Message> DecodeMessage(std::string_view bytes, int size) {
  WireReader reader(bytes);
  const uint8_t type = reader.Byte();
  if (type >= std::variant_size_v<Message>) {
    return InternalError("control message of unknown type " +
                         std::to_string(type));
  }
  Result<Message> message = DecodeBody(reader, type, size);
  if (!reader.Finished()) {
    return InternalError(std::string("malformed control message ") +
                         kMessageNames[type] + " of " +
                         std::to_string(bytes.size()) + " bytes");
  }
  return message;
}

}  // namespace keras_ring
