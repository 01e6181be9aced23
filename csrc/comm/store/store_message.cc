#include "csrc/comm/store/store_message.h"

#include "csrc/base/wire.h"

namespace keras_ring {

std::string Encode(const StoreRequest& request) {
  WireWriter writer;
  writer.Byte(static_cast<uint8_t>(request.kind));
  writer.Varint(request.id);
  writer.Text(request.key);
  if (request.kind == StoreRequest::Kind::kList) {
    writer.Varint(request.at_least);
  } else {
    writer.Text(request.value);
  }
  return writer.Take();
}

std::string EncodeEntries(const StoreEntries& entries) {
  WireWriter writer;
  writer.Varint(entries.size());
  for (const auto& [key, value] : entries) {
    writer.Text(key);
    writer.Text(value);
  }
  return writer.Take();
}

std::string EncodeReply(uint64_t id, const std::string& entries) {
  WireWriter writer;
  writer.Varint(id);
  return writer.Take() + entries;
}

std::string Encode(const StoreReply& reply) {
  return EncodeReply(reply.id, EncodeEntries(reply.entries));
}

bool Decode(std::string_view bytes, StoreRequest* request) {
  WireReader reader(bytes);
  uint8_t kind = reader.Byte();
  request->id = reader.Varint();
  request->key = std::string(reader.Text(kMaxStoreKeyBytes));
  request->kind = static_cast<StoreRequest::Kind>(kind);
  switch (request->kind) {
    case StoreRequest::Kind::kSet:
      request->value = std::string(reader.Text(kMaxStoreValueBytes));
      return reader.Finished();
    case StoreRequest::Kind::kUnset:
      request->value = std::string(reader.Text(kMaxStoreKeyBytes));
      return reader.Finished();
    case StoreRequest::Kind::kList:
      request->at_least = reader.Varint();
      return reader.Finished();
  }
  return false;
}

bool Decode(std::string_view bytes, StoreReply* reply) {
  WireReader reader(bytes);
  reply->id = reader.Varint();
  // Each entry takes at least its two lengths.
  size_t count = reader.Count(2);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    std::string key(reader.Text(kMaxStoreKeyBytes));
    reply->entries[std::move(key)] =
        std::string(reader.Text(kMaxStoreReplyBytes));
  }
  return reader.Finished();
}

}  // namespace keras_ring
