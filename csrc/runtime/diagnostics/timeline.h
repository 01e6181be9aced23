// Timeline: what the threads of this rank spend their time with, written to
// files while the job runs.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_TIMELINE_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_TIMELINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/meter.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace keras_ring {

// Whose timeline it is.
struct TimelineOwner {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string host;
  // For whoever wants to run it again.
  std::vector<std::pair<std::string, std::string>> settings;
};

// A number that changes while the job runs.
struct TimelineSample {
  const char* name = "";
  int64_t value = 0;
};

// Two files per rank: rank.N.jsonl has what is said once (a name, a thread, how
// far the clock is from rank 0's), as a JSON object on each line; rank.N.spans
// has TimelineRecord after TimelineRecord. They are appended to, so that a rank
// that is killed leaves all but the last tenth of a second.
//
// Whoever records only copies into memory of bounded size; a thread of the
// timeline's own writes it. If the disk is slower than what is recorded, spans
// are dropped and counted. One that stands still holds that thread, which
// nobody waits for, and nothing else.
class Timeline final : public TraceSink {
 public:
  // So many spans fit into memory.
  static constexpr size_t kUsualCapacity = 1 << 16;

  // `sample` is asked for numbers whenever something is written, by the thread
  // that does, for which it must outlive the object. Null: there are none.
  using Sampler = std::function<std::vector<TimelineSample>()>;
  explicit Timeline(TimelineOwner owner, Sampler sample = nullptr,
                    size_t capacity = kUsualCapacity);
  ~Timeline() override;

  struct Settings {
    std::string directory;  // is made if it must be
    bool mark_cycles = false;
    // It stops by itself after this time.
    std::optional<Duration> length;
  };
  // kFailedPrecondition: it is recorded already. kInternal: the files cannot be
  // written.
  Status Start(const Settings& settings) KR_EXCLUDES(mutex_);
  // Writes what is left, and ends the files with `reason`. Waits for the disk,
  // but not for long. Without a start: nothing.
  void Stop(const std::string& reason) KR_EXCLUDES(mutex_);

  // See TraceSink. What comes from a recording's end on is for nobody.
  using TraceSink::Record;
  void Record(const TraceSpan* spans, size_t count) override
      KR_EXCLUDES(mutex_);

  // Rank 0's clock shows `offset` more than this one's, give or take `error`.
  void SetClock(TimePoint at, Duration offset, Duration error)
      KR_EXCLUDES(mutex_);

  const std::atomic<bool>& on() const { return on_; }

 private:
  class Recording;

  const TimelineOwner owner_;
  const Sampler sample_;
  const size_t capacity_;
  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  // Its writer has it, too, and may be held by a disk for longer than this
  // object lives.
  std::shared_ptr<Recording> recording_ KR_GUARDED_BY(mutex_);
  std::string clock_ KR_GUARDED_BY(mutex_);  // the last line of it
};

// As it is in the file, in the byte order of the host; times are nanoseconds of
// the host's steady clock.
struct TimelineRecord {
  enum Kind : uint8_t { kSpan = 0, kSample, kMoment };
  uint8_t kind = kSpan;
  uint8_t phase = 0;
  uint16_t tensors = 0;  // at most 65535
  uint32_t thread = 0;   // the system's number
  uint32_t name = 0;     // of a line of the other file; 0: none
  int32_t peer = -1;
  uint64_t tag = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t value = 0;
};
static_assert(sizeof(TimelineRecord) == 48, "what readers of the file expect");

// Tells another sink what happens in a process set: its collectives are
// numbered from 1, too, so the set's number goes into the upper bits of tags.
class ProcessSetTrace final : public TraceSink {
 public:
  static constexpr int kTagBits = 48;

  ProcessSetTrace(std::shared_ptr<Timeline> timeline, uint32_t process_set);
  using TraceSink::Record;
  void Record(const TraceSpan* spans, size_t count) override;

 private:
  const std::shared_ptr<Timeline> timeline_;
  const uint64_t process_set_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_TIMELINE_H_
