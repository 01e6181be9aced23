#include "csrc/testing/fake_cuda_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/testing/fake_cuda_hidden.h"

namespace keras_ring::cuda::fake {
namespace {

struct Handle {
  int64_t pid;
  int64_t descriptor;
};
static_assert(sizeof(Handle) <= sizeof(IpcEventHandle));

std::shared_ptr<EventCounts> MapCounts(int descriptor) {
  void* const page = mmap(nullptr, sizeof(EventCounts), PROT_READ | PROT_WRITE,
                          MAP_SHARED, descriptor, 0);
  if (page == MAP_FAILED) return nullptr;
  return {static_cast<EventCounts*>(page), [descriptor](EventCounts* counts) {
            munmap(counts, sizeof(EventCounts));
            close(descriptor);
          }};
}

std::atomic<int> longest_delay{0};
std::atomic<uint64_t> delay_seed{0};

void Delay() {
  const int longest = longest_delay.load();
  if (longest == 0) return;
  static thread_local std::mt19937_64 random(delay_seed.fetch_add(1));
  std::this_thread::sleep_for(
      std::chrono::microseconds(random() % static_cast<unsigned>(longest)));
}

}  // namespace

std::unique_ptr<FakeEvent> FakeEvent::Create(bool interprocess) {
  if (!interprocess) {
    return std::unique_ptr<FakeEvent>(
        new FakeEvent(std::make_shared<EventCounts>(), -1));
  }
  const int descriptor = memfd_create("fake-event", MFD_CLOEXEC);
  KR_CHECK(descriptor >= 0);
  KR_CHECK(ftruncate(descriptor, sizeof(EventCounts)) == 0);
  return std::unique_ptr<FakeEvent>(
      new FakeEvent(MapCounts(descriptor), descriptor));
}

std::unique_ptr<FakeEvent> FakeEvent::Open(const IpcEventHandle& handle) {
  Handle content;
  std::memcpy(&content, &handle, sizeof(content));
  if (content.pid == getpid()) return nullptr;
  const std::string path = "/proc/" + std::to_string(content.pid) + "/fd/" +
                           std::to_string(content.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  return std::unique_ptr<FakeEvent>(new FakeEvent(MapCounts(descriptor), -1));
}

ErrorCode FakeEvent::Export(IpcEventHandle* handle) const {
  if (descriptor_ < 0) return kInvalidValue;
  const Handle content{getpid(), descriptor_};
  std::memcpy(handle, &content, sizeof(content));
  return kSuccess;
}

EventPoint::EventPoint(const FakeEvent& event)
    : counts_(event.counts()), number_(counts_->recorded.load()) {}

bool EventPoint::Reached() const {
  bool reached;
  {
    const Hidden hidden;
    reached = counts_->reached.load() >= number_;
  }
  if (reached) Acquire(counts_.get());
  return reached;
}

void EventPoint::Await() const {
  while (!Reached()) {
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
}

FakeStream::FakeStream() : thread_([this] { Run(); }) {}

FakeStream::~FakeStream() {
  {
    const Hidden hidden;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }
  thread_.join();
}

void FakeStream::Give(std::function<void()> work) {
  auto* const given = new std::function<void()>(std::move(work));
  Release(given);
  const Hidden hidden;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(given);
  }
  changed_.notify_all();
}

void FakeStream::Run() {
  for (;;) {
    std::function<void()>* next;
    {
      const Hidden hidden;
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      next = work_.front();
      work_.pop_front();
      Delay();
    }
    Acquire(next);
    (*next)();
    delete next;
  }
}

void FakeStream::Record(const FakeEvent& event) {
  const std::shared_ptr<EventCounts> counts = event.counts();
  uint64_t number;
  {
    const Hidden hidden;
    number = counts->recorded.fetch_add(1) + 1;
  }
  Give([counts, number] {
    Release(counts.get());
    const Hidden hidden;
    uint64_t reached = counts->reached.load();
    while (reached < number &&
           !counts->reached.compare_exchange_weak(reached, number)) {
    }
  });
}

void FakeStream::Wait(const FakeEvent& event) {
  Give([point = EventPoint(event)] { point.Await(); });
}

void FakeStream::Synchronize() {
  const auto event = FakeEvent::Create(/*interprocess=*/false);
  Record(*event);
  EventPoint(*event).Await();
}

void FakeStream::SetDelays(uint64_t seed, int microseconds) {
  delay_seed.store(seed);
  longest_delay.store(microseconds);
}

}  // namespace keras_ring::cuda::fake
