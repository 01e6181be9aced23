// Timeline: records what the threads of this rank spend their time on, in files
// that are written while the job runs.
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

// The rank that a timeline belongs to.
struct TimelineOwner {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string host;
  // For a user who wants to run the job again.
  std::vector<std::pair<std::string, std::string>> settings;
};

// A number that changes while the job runs.
struct TimelineSample {
  const char* name = "";
  int64_t value = 0;
};

// Two files per rank: rank.N.jsonl has items that are written once (a name, a
// thread, the offset of the clock to rank 0's), as a JSON object on each line;
// rank.N.spans has one TimelineRecord after the other. The files are appended
// to, so that a rank that is killed loses only the last tenth of a second.
//
// Recording only copies into memory of bounded size; a thread of the timeline
// writes it. If the disk is too slow, spans are dropped and counted. A disk
// that hangs blocks that thread, which nobody waits for, and nothing else.
class Timeline final : public TraceSink {
 public:
  // The number of spans that fit into memory.
  static constexpr size_t kUsualCapacity = 1 << 16;

  // `sample` is called for numbers before each write, on the writer's thread.
  // What it uses must stay valid as long as that thread runs, which may be
  // longer than this object lives. Null: there are none.
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
  // kFailedPrecondition: a recording is running already. kInternal: the files
  // cannot be written.
  Status Start(const Settings& settings) KR_EXCLUDES(mutex_);
  // Writes the remaining spans, and ends the files with `reason`. Waits for the
  // disk, but not for long. Does nothing without a recording.
  void Stop(const std::string& reason) KR_EXCLUDES(mutex_);

  // See TraceSink. Spans after the end of a recording are dropped.
  using TraceSink::Record;
  void Record(const TraceSpan* spans, size_t count) override
      KR_EXCLUDES(mutex_);

  // Rank 0's clock is `offset` ahead of this one's, give or take `error`.
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
  // The writer shares it, as a disk may block the writer for longer than this
  // object lives.
  std::shared_ptr<Recording> recording_ KR_GUARDED_BY(mutex_);
  std::string clock_ KR_GUARDED_BY(mutex_);  // the last line of it
};

// The layout in the file, in the byte order of the host; times are nanoseconds
// of the host's steady clock.
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

// Forwards the spans of a process set to the timeline. Its collectives are
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
