#include "csrc/comm/rendezvous/membership.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>

#include "csrc/base/mutex.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/base/wire.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {
namespace {

// The first byte of each message; keras_ring/launch/elastic/messages.py has the
// same.
constexpr uint8_t kReport = 1;
constexpr uint8_t kNext = 2;
constexpr uint8_t kEnd = 3;
constexpr uint8_t kWaiting = 4;
constexpr uint8_t kOver = 5;

constexpr uint8_t kBegun = 1;
constexpr uint8_t kWhole = 2;

constexpr size_t kMaxText = 1024;
constexpr size_t kMaxMessage = 64 << 10;
// How often a wait looks whether it is to end.
constexpr std::chrono::milliseconds kLook(50);

std::string ShortText(const std::string& text) {
  return text.substr(0, kMaxText);
}

Status Malformed(const char* what) {
  return InternalError(std::string("a malformed ") + what +
                       " between a rank and its launcher");
}

// One thread, `kr-members`, reads what the launcher says.
class SocketMembership final : public Membership {
 public:
  explicit SocketMembership(int fd) : fd_(fd) {}

  ~SocketMembership() override { Stop(); }

  void Stop() override {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    (void)!write(stop_.fd(), &one, sizeof(one));
    thread_.join();
  }

  Status Watch(OnOver on_over) override {
    on_over_ = std::move(on_over);
    stop_ = Socket(eventfd(0, EFD_CLOEXEC));
    if (!stop_.valid()) {
      return ResourceExhaustedError("eventfd: " + ErrnoText(errno));
    }
    KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-members", [this] {
                          SetThreadName("kr-members", 0);
                          Read();
                        }));
    return OkStatus();
  }

  Status Send(const MemberReport& report) override {
    const std::string bytes = EncodeReport(report);
    ssize_t sent;
    do {
      sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(bytes.size())) return OkStatus();
    return UnavailableError("the launcher cannot be told of a lost rank: " +
                            ErrnoText(errno));
  }

  Result<NextGeneration> Await(Deadline deadline,
                               const std::function<bool()>& stopped) override {
    for (;;) {
      if (stopped()) return CancelledError("the wait has ended");
      MutexLock lock(mutex_);
      changed_.WaitUntil(
          mutex_, std::min(deadline.at(), Deadline::After(kLook).at()),
          [this]()
              KR_REQUIRES(mutex_) { return !answers_.empty() || !gone_.ok(); });
      if (!answers_.empty()) {
        const std::string bytes = std::move(answers_.front());
        answers_.pop_front();
        return DecodeNext(bytes);
      }
      if (!gone_.ok()) return gone_;
      if (deadline.expired()) {
        return DeadlineExceededError(
            "the launcher has not said in time who goes on");
      }
    }
  }

  uint64_t NumWaiting() override {
    MutexLock lock(mutex_);
    return waiting_;
  }

 private:
  void Read() {
    Status status;
    while (status.ok()) {
      pollfd ready[] = {{fd_, POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
      if (poll(ready, 2, -1) < 0 && errno != EINTR) {
        status = InternalError("poll: " + ErrnoText(errno));
      } else if (ready[1].revents != 0) {
        return;
      } else if (ready[0].revents != 0) {
        status = ReadOne();
      }
    }
    MutexLock lock(mutex_);
    gone_ = status;
    changed_.NotifyAll();
  }

  Status ReadOne() {
    std::string bytes(kMaxMessage, '\0');
    const ssize_t length =
        recv(fd_, bytes.data(), bytes.size(), MSG_TRUNC | MSG_DONTWAIT);
    if (length == 0) return UnavailableError("the launcher has gone");
    if (length < 0) {
      if (errno == EAGAIN || errno == EINTR) return OkStatus();
      return UnavailableError("the launcher does not answer: " +
                              ErrnoText(errno));
    }
    if (static_cast<size_t>(length) > bytes.size()) return Malformed("message");
    bytes.resize(length);
    if (const std::optional<GenerationOver> over = DecodeOver(bytes)) {
      on_over_(*over);
      return OkStatus();
    }
    MutexLock lock(mutex_);
    if (const std::optional<uint64_t> waiting = DecodeWaiting(bytes)) {
      waiting_ = *waiting;
      return OkStatus();
    }
    waiting_ = 0;  // the launcher tells who waits for the next one
    answers_.push_back(std::move(bytes));
    changed_.NotifyAll();
    return OkStatus();
  }

  const int fd_;
  OnOver on_over_;
  Socket stop_;
  std::thread thread_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t waiting_ KR_GUARDED_BY(mutex_) = 0;
  // To reports, in their order.
  std::deque<std::string> answers_ KR_GUARDED_BY(mutex_);
  Status gone_ KR_GUARDED_BY(mutex_);  // why nothing is read any more
};

}  // namespace

std::string EncodeReport(const MemberReport& report) {
  WireWriter writer;
  writer.Byte(kReport);
  writer.Byte(static_cast<uint8_t>(report.stand));
  writer.Varint(report.generation);
  writer.Text(ShortText(report.host));
  writer.Varint(report.port);
  writer.Text(ShortText(report.cause));
  writer.Varint(report.steps.size());
  for (const StepReport& step : report.steps) {
    writer.Text(step.group);
    writer.Varint(step.settled);
    writer.Byte((step.begun ? kBegun : 0) | (step.whole ? kWhole : 0));
  }
  return writer.Take();
}

Result<MemberReport> DecodeReport(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.Byte() != kReport) return Malformed("report");
  MemberReport report;
  const uint8_t stand = reader.Byte();
  if (stand > static_cast<uint8_t>(MemberStand::kJoins)) reader.Fail();
  report.stand = static_cast<MemberStand>(stand);
  report.generation = reader.Varint();
  report.host = std::string(reader.Text(kMaxText));
  const uint64_t port = reader.Varint();
  report.cause = std::string(reader.Text(kMaxText));
  report.steps.resize(reader.Count(3));
  for (StepReport& step : report.steps) {
    step.group = std::string(reader.Text(kMaxText));
    step.settled = reader.Varint();
    const uint8_t flags = reader.Byte();
    step.begun = (flags & kBegun) != 0;
    step.whole = (flags & kWhole) != 0;
    if (flags > (kBegun | kWhole)) reader.Fail();
  }
  if (!reader.Finished() || port > UINT16_MAX) return Malformed("report");
  report.port = static_cast<uint16_t>(port);
  return report;
}

std::string EncodeNext(const NextGeneration& next) {
  WireWriter writer;
  writer.Byte(kNext);
  writer.Varint(next.generation);
  writer.Byte(next.admitted);
  writer.Varint(next.rank);
  writer.Varint(next.members.size());
  for (int32_t member : next.members) writer.Varint(member);
  writer.Text(ShortText(next.host));
  writer.Varint(next.port);
  writer.Varint(next.settled.size());
  for (const StepSettlement& settled : next.settled) {
    writer.Text(settled.group);
    writer.Varint(settled.step);
    writer.Byte(static_cast<uint8_t>(settled.outcome));
  }
  return writer.Take();
}

std::string EncodeEnd(const std::string& reason) {
  WireWriter writer;
  writer.Byte(kEnd);
  writer.Text(ShortText(reason));
  return writer.Take();
}

std::string EncodeWaiting(uint64_t processes) {
  WireWriter writer;
  writer.Byte(kWaiting);
  writer.Varint(processes);
  return writer.Take();
}

std::string EncodeOver(uint64_t generation, const std::string& reason) {
  WireWriter writer;
  writer.Byte(kOver);
  writer.Varint(generation);
  writer.Text(ShortText(reason));
  return writer.Take();
}

std::optional<GenerationOver> DecodeOver(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.Byte() != kOver) return std::nullopt;
  GenerationOver over;
  over.generation = reader.Varint();
  over.reason = std::string(reader.Text(kMaxText));
  if (!reader.Finished()) return std::nullopt;
  return over;
}

std::optional<uint64_t> DecodeWaiting(std::string_view bytes) {
  WireReader reader(bytes);
  if (reader.Byte() != kWaiting) return std::nullopt;
  const uint64_t processes = reader.Varint();
  if (!reader.Finished()) return std::nullopt;
  return processes;
}

Result<NextGeneration> DecodeNext(std::string_view bytes) {
  WireReader reader(bytes);
  const uint8_t kind = reader.Byte();
  if (kind == kEnd) {
    const std::string reason(reader.Text(kMaxText));
    if (!reader.Finished()) return Malformed("end");
    return UnavailableError(reason);
  }
  if (kind != kNext) return Malformed("generation");
  NextGeneration next;
  next.generation = reader.Varint();
  const uint8_t admitted = reader.Byte();
  if (admitted > 1) reader.Fail();
  next.admitted = admitted != 0;
  const uint64_t rank = reader.Varint();
  next.members.resize(reader.Count(1));
  for (int32_t& member : next.members) {
    const uint64_t number = reader.Varint();
    if (number > INT32_MAX) reader.Fail();
    member = static_cast<int32_t>(number);
  }
  next.host = std::string(reader.Text(kMaxText));
  const uint64_t port = reader.Varint();
  next.settled.resize(reader.Count(3));
  for (StepSettlement& settled : next.settled) {
    settled.group = std::string(reader.Text(kMaxText));
    settled.step = reader.Varint();
    const uint8_t outcome = reader.Byte();
    if (outcome > static_cast<uint8_t>(StepOutcome::kDiscarded)) reader.Fail();
    settled.outcome = static_cast<StepOutcome>(outcome);
  }
  if (!reader.Finished() || port > UINT16_MAX || rank >= next.members.size()) {
    return Malformed("generation");
  }
  next.rank = static_cast<int32_t>(rank);
  next.port = static_cast<uint16_t>(port);
  return next;
}

Result<std::unique_ptr<Membership>> OpenMembership(int fd) {
  // Programs that this one starts do not get it.
  (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0 ||
      type != SOCK_SEQPACKET) {
    return InvalidArgumentError("KERAS_RING_MEMBERSHIP_FD: descriptor " +
                                std::to_string(fd) +
                                " is no socket of a launcher");
  }
  return std::unique_ptr<Membership>(std::make_unique<SocketMembership>(fd));
}

}  // namespace keras_ring
