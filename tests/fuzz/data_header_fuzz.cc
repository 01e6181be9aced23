// The header in front of a collective's bytes, and the stream that reads it.
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/data_header.h"
#include "csrc/comm/transport/plan_streams.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxStreamBytes = 4096;

void CheckHeader(std::string_view bytes) {
  uint8_t raw[kDataHeaderBytes] = {};
  std::memcpy(raw, bytes.data(), std::min(bytes.size(), sizeof(raw)));
  DataHeader header;
  if (!DecodeDataHeader(raw, &header)) return;
  KR_CHECK(header.bytes <= kMaxDataBytes);
  uint8_t again[kDataHeaderBytes];
  EncodeDataHeader(header, again);
  KR_CHECK(std::memcmp(raw, again, sizeof(raw)) == 0);
}

// `sizes`: of the segments that are expected.
void CheckStream(uint64_t tag, std::string_view sizes,
                 std::string_view stream) {
  int fds[2];
  KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  Socket sender(fds[0]);
  const Link receiver{Socket(fds[1])};
  KR_CHECK(send(sender.fd(), stream.data(), stream.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(stream.size()));
  sender.Close();

  // Each on its own, so that ASAN sees a byte too many.
  std::vector<std::string> segments;
  size_t total = 0;
  for (char size : sizes) {
    segments.emplace_back(static_cast<uint8_t>(size), '\0');
    total += segments.back().size();
  }
  Incoming incoming;
  incoming.peer = 0;
  for (std::string& segment : segments) {
    incoming.segments.push_back({segment.data(), segment.size()});
  }
  const RankSet ranks;
  ReceiveStream receive(tag, incoming, receiver, ranks);
  while (!receive.done()) {
    if (!receive.ready()) ++incoming.allowed;
    const size_t before = incoming.received;
    const Result<Moved> moved = receive.Advance();
    if (!moved.ok()) return;
    // The stream has ended: no more is there, and to ask again is an error.
    KR_CHECK(!moved->blocked || moved->bytes > 0);
    KR_CHECK(incoming.received >= before);
    KR_CHECK(incoming.received <= incoming.allowed);
  }
  KR_CHECK(incoming.received == segments.size());
  KR_CHECK(stream.size() >= kDataHeaderBytes + total);
  std::string all;
  for (const std::string& segment : segments) all += segment;
  KR_CHECK(all == stream.substr(kDataHeaderBytes, total));
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  Script script(AsText(data, size));
  const uint64_t tag = script.Number();
  const std::string_view sizes = script.Text();
  const std::string_view stream = script.Rest();
  CheckHeader(stream);
  if (!stream.empty() && stream.size() <= kMaxStreamBytes) {
    CheckStream(tag, sizes, stream);
  }
  return 0;
}
