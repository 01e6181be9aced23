#include "csrc/runtime/elastic/result_log.h"

#include <algorithm>
#include <utility>

#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxName = 4096;

size_t BytesOf(const ResultLog::Use& use,
               const std::optional<ResultLog::Results>& results) {
  size_t bytes = use.name.size() + sizeof(use);
  if (!results) return bytes;
  for (const std::string& result : *results) bytes += result.size();
  return bytes;
}

void Write(WireWriter& writer, const ResultLog::Use& use) {
  writer.Text(use.name);
  writer.Varint(use.number);
}

ResultLog::Use ReadUse(WireReader& reader) {
  ResultLog::Use use;
  use.name = std::string(reader.Text(kMaxName));
  use.number = reader.Varint();
  return use;
}

}  // namespace

void ResultLog::Add(const Use& use, std::optional<Results> results) {
  if (BytesOf(use, results) > kMostOfOne) results.reset();
  bytes_ += BytesOf(use, results);
  newest_.emplace_back(use, std::move(results));
  while (bytes_ > kMostOfAll) {
    bytes_ -= BytesOf(newest_.front().first, newest_.front().second);
    newest_.pop_front();
  }
}

std::string ResultLog::EncodeWanted(const std::vector<Use>& wanted) {
  WireWriter writer;
  writer.Varint(wanted.size());
  for (const Use& use : wanted) Write(writer, use);
  return writer.Take();
}

Result<std::vector<ResultLog::Use>> ResultLog::DecodeWanted(
    std::string_view bytes) {
  WireReader reader(bytes);
  std::vector<Use> wanted(reader.Count(2));
  for (Use& use : wanted) use = ReadUse(reader);
  if (!reader.Finished()) return InternalError("a malformed list of results");
  return wanted;
}

std::string ResultLog::EncodeFound(const std::vector<Use>& wanted) const {
  std::vector<const std::pair<Use, std::optional<Results>>*> found;
  for (const auto& one : newest_) {
    const bool is_wanted =
        std::any_of(wanted.begin(), wanted.end(), [&one](const Use& use) {
          return !(use < one.first) && !(one.first < use);
        });
    if (is_wanted) found.push_back(&one);
  }
  WireWriter writer;
  writer.Varint(found.size());
  for (const auto* one : found) {
    Write(writer, one->first);
    writer.Byte(one->second.has_value());
    if (!one->second) continue;
    writer.Varint(one->second->size());
    for (const std::string& result : *one->second) writer.Text(result);
  }
  return writer.Take();
}

Status ResultLog::DecodeFound(std::string_view bytes, Found& found) {
  WireReader reader(bytes);
  const size_t count = reader.Count(3);
  for (size_t i = 0; i < count; ++i) {
    const Use use = ReadUse(reader);
    std::optional<Results> results;
    if (reader.Byte() != 0) {
      results.emplace(reader.Count(1));
      for (std::string& result : *results) {
        result = std::string(reader.Text(kMostOfOne));
      }
    }
    // Equal on all ranks that have it.
    found.emplace(use, std::move(results));
  }
  if (!reader.Finished()) return InternalError("malformed results");
  return OkStatus();
}

}  // namespace keras_ring
