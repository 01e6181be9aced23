// FrameReader and FramedConnection: a stream that arrives in any pieces.
#include <sys/socket.h>

#include <string>
#include <vector>

#include "csrc/comm/net/frame.h"
#include "csrc/comm/net/framed_connection.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

constexpr size_t kLimit = 300;
// What a socket takes at once.
constexpr size_t kSocketBytes = 4096;

struct Frames {
  std::vector<std::string> frames;
  bool broken = false;
};

// The frames that are whole by now.
template <typename Reader>
void Cut(Reader& reader, Frames& frames) {
  while (!frames.broken) {
    std::string_view frame;
    Result<bool> whole = reader.Next(&frame);
    frames.broken = !whole.ok();
    if (frames.broken || !*whole) return;
    KR_CHECK(frame.size() <= kLimit);
    frames.frames.emplace_back(frame);
  }
}

Frames InPieces(std::string_view stream, std::string_view sizes) {
  FrameReader reader(kLimit);
  Frames frames;
  size_t at = 0;
  for (size_t i = 0; at < stream.size() && !frames.broken; ++i) {
    const size_t size =
        i < sizes.size() ? static_cast<uint8_t>(sizes[i]) : stream.size();
    reader.Append(stream.substr(at, size));
    at += std::min(size, stream.size() - at);
    Cut(reader, frames);
  }
  return frames;
}

Frames ThroughASocket(std::string_view stream) {
  int fds[2];
  KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  Socket sender(fds[0]);
  FramedConnection connection(Link{Socket(fds[1])}, kLimit);
  KR_CHECK(send(sender.fd(), stream.data(), stream.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(stream.size()));
  sender.Close();
  Frames frames;
  while (!frames.broken) {
    Result<size_t> got = connection.Read();
    if (!got.ok()) {
      KR_CHECK(got.status().code() == StatusCode::kUnavailable);
      break;
    }
    Cut(connection, frames);
  }
  return frames;
}

void Run(std::string_view sizes, std::string_view stream) {
  const Frames whole = InPieces(stream, "");
  const Frames pieces = InPieces(stream, sizes);
  KR_CHECK(whole.frames == pieces.frames && whole.broken == pieces.broken);
  std::string again;
  for (const std::string& frame : whole.frames) {
    char prefix[10];
    again.append(prefix, EncodeFrameLength(frame.size(), prefix));
    again += frame;
  }
  const Frames twice = InPieces(again, sizes);
  KR_CHECK(twice.frames == whole.frames && !twice.broken);
  if (stream.empty() || stream.size() > kSocketBytes) return;
  const Frames sent = ThroughASocket(stream);
  KR_CHECK(sent.frames == whole.frames && sent.broken == whole.broken);
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Script script(keras_ring::AsText(data, size));
  const std::string_view sizes = script.Text();
  keras_ring::Run(sizes, script.Rest());
  return 0;
}
