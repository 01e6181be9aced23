#include "csrc/comm/rendezvous/mesh.h"

#include <map>
#include <utility>

#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

// Room for the rest of the message: a rank, and lengths.
constexpr size_t kBytesPerRank = kMaxExchangedBytes + 32;

using Parts = std::map<int, std::string>;  // by rank

Status SendParts(const Link& link, const Parts& parts, Deadline deadline) {
  WireWriter body;
  body.Varint(parts.size());
  for (const auto& [rank, bytes] : parts) {
    body.Varint(rank);
    body.Text(bytes);
  }
  WireWriter length;
  length.Fixed64(body.bytes().size());
  KR_RETURN_IF_ERROR(
      WriteFull(link, length.bytes().data(), length.bytes().size(), deadline));
  return WriteFull(link, body.bytes().data(), body.bytes().size(), deadline);
}

// Adds to `parts`, which has none of them.
Status ReceiveParts(const Link& link, int size, Deadline deadline,
                    Parts& parts) {
  char prefix[sizeof(uint64_t)];
  KR_RETURN_IF_ERROR(ReadFull(link, prefix, sizeof(prefix), deadline));
  const uint64_t length =
      WireReader(std::string_view(prefix, sizeof(prefix))).Fixed64();
  if (length > kBytesPerRank * size) {
    return InternalError("an exchange of " + std::to_string(length) +
                         " bytes among " + std::to_string(size) + " ranks");
  }
  std::string body(length, '\0');
  KR_RETURN_IF_ERROR(ReadFull(link, body.data(), body.size(), deadline));
  WireReader reader(body);
  const size_t count = reader.Count(/*element_bytes=*/2);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    const uint64_t rank = reader.Varint();
    const std::string_view bytes = reader.Text(kMaxExchangedBytes);
    const bool is_new =
        rank < static_cast<uint64_t>(size) &&
        parts.emplace(static_cast<int>(rank), std::string(bytes)).second;
    if (!is_new) reader.Fail();
  }
  if (reader.Finished()) return OkStatus();
  return InternalError("malformed bytes in an exchange");
}

}  // namespace

// Up a binary tree, then down again: as many steps as its depth, and three
// links at most on each rank.
Result<std::vector<std::string>> Mesh::Exchange(const std::string& own,
                                                Deadline deadline) {
  KR_CHECK(own.size() <= kMaxExchangedBytes);
  const int size = static_cast<int>(members().size());
  const int self = rank();
  std::vector<int> children;
  for (int child : {2 * self + 1, 2 * self + 2}) {
    if (child < size) children.push_back(child);
  }
  const int parent = self == 0 ? -1 : (self - 1) / 2;
  std::vector<int> peers = children;
  if (parent >= 0) peers.push_back(parent);
  KR_ASSIGN_OR_RETURN(const Links links,
                      Connect(LinkKind::kExchange, peers, deadline));
  auto with = [this](const Status& status, int peer) {
    const Member& member = members()[peer];
    return status.WithContext("an exchange with rank " + std::to_string(peer) +
                              " (host " + member.host + ", pid " +
                              std::to_string(member.pid) + ")");
  };
  Parts parts = {{self, own}};
  for (int child : children) {
    KR_RETURN_IF_ERROR(
        with(ReceiveParts(links.at(child), size, deadline, parts), child));
  }
  if (parent >= 0) {
    KR_RETURN_IF_ERROR(
        with(SendParts(links.at(parent), parts, deadline), parent));
    parts.clear();
    KR_RETURN_IF_ERROR(
        with(ReceiveParts(links.at(parent), size, deadline, parts), parent));
  }
  if (parts.size() != static_cast<size_t>(size)) {
    return InternalError("an exchange among " + std::to_string(size) +
                         " ranks came to " + std::to_string(parts.size()) +
                         " values");
  }
  for (int child : children) {
    KR_RETURN_IF_ERROR(
        with(SendParts(links.at(child), parts, deadline), child));
  }
  std::vector<std::string> by_rank;
  for (auto& [rank, bytes] : parts) by_rank.push_back(std::move(bytes));
  return by_rank;
}

}  // namespace keras_ring
