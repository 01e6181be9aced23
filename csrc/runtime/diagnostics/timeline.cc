#include "csrc/runtime/diagnostics/timeline.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "csrc/base/deadline.h"
#include "csrc/base/json_text.h"
#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

// The time whose spans are lost if a rank is killed.
constexpr auto kFlushEvery = std::chrono::milliseconds(100);
// How long an end waits for the disk.
constexpr auto kEndLimit = std::chrono::seconds(3);
// A program that names its tensors anew in each step must not fill the memory.
constexpr size_t kMaxNames = 200'000;

constexpr int kFormat = 1;

int64_t Nanoseconds(TimePoint at) {
  return std::chrono::nanoseconds(at.time_since_epoch()).count();
}

uint32_t ThreadNumber() {
  static thread_local const auto number =
      static_cast<uint32_t>(syscall(SYS_gettid));
  return number;
}

std::string ThreadLine() {
  char name[16] = "";
  (void)pthread_getname_np(pthread_self(), name, sizeof(name));
  return R"({"type":"thread","id":)" + std::to_string(ThreadNumber()) +
         R"(,"name":)" + JsonText(name) + "}\n";
}

std::string OwnerLine(const TimelineOwner& owner) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  std::string line =
      R"({"type":"rank","format":"keras_ring-timeline","version":)" +
      std::to_string(kFormat) + R"(,"rank":)" + std::to_string(owner.rank) +
      R"(,"size":)" + std::to_string(owner.size) + R"(,"local_rank":)" +
      std::to_string(owner.local_rank) + R"(,"host":)" + JsonText(owner.host) +
      R"(,"pid":)" + std::to_string(getpid()) + R"(,"started_unix_ns":)" +
      std::to_string(std::chrono::nanoseconds(since_epoch).count()) +
      R"(,"started_ns":)" +
      std::to_string(Nanoseconds(std::chrono::steady_clock::now())) +
      R"(,"settings":{)";
  bool first = true;
  for (const auto& [name, value] : owner.settings) {
    line += (first ? "" : ",") + JsonText(name) + ":" + JsonText(value);
    first = false;
  }
  return line + "}}\n";
}

// A file that is appended to.
class Appended {
 public:
  explicit Appended(std::string path) : path_(std::move(path)) {}
  ~Appended() {
    if (fd_ >= 0) close(fd_);
  }
  Appended(const Appended&) = delete;
  Appended& operator=(const Appended&) = delete;

  Status Open() {
    // A name that others may have put there first is not followed.
    (void)unlink(path_.c_str());
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd_ < 0 ? Failed() : OkStatus();
  }

  Status Write(const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t wrote = write(fd_, at, bytes);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return Failed();
      at += wrote;
      bytes -= static_cast<size_t>(wrote);
    }
    return OkStatus();
  }

 private:
  Status Failed() const {
    return InternalError("cannot write the timeline " + path_ + ": " +
                         ErrnoText(errno));
  }

  const std::string path_;
  int fd_ = -1;
};

}  // namespace

class Timeline::Recording {
 public:
  Recording(const TimelineOwner& owner, const Settings& settings,
            Sampler sample, size_t capacity)
      : sample_(std::move(sample)),
        marks_cycles_(settings.mark_cycles),
        capacity_(capacity),
        lines_file_(PathOf(owner, settings, ".jsonl")),
        spans_file_(PathOf(owner, settings, ".spans")),
        lines_(OwnerLine(owner)) {
    if (settings.length) {
      until_ = std::chrono::steady_clock::now() + *settings.length;
    }
    records_.reserve(capacity_);
  }

  Status Open() {
    KR_RETURN_IF_ERROR(lines_file_.Open());
    KR_RETURN_IF_ERROR(spans_file_.Open());
    // Written at once, so that Start reports a failure to write.
    const std::string lines = TakeLines();
    return lines_file_.Write(lines.data(), lines.size());
  }

  // Returns false once the recording is over: callers need not try again.
  bool Add(const TraceSpan* spans, size_t count) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (over_) return false;
    const uint32_t thread = ThreadNumber();
    if (threads_.insert(thread).second) lines_ += ThreadLine();
    const size_t before = records_.size();
    for (size_t i = 0; i < count; ++i) AddOne(spans[i], thread);
    if (before < capacity_ / 2 && records_.size() >= capacity_ / 2) {
      changed_.NotifyAll();
    }
    return true;
  }

  void AddLine(const std::string& line) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    lines_ += line;
  }

  // The writer's thread.
  void Run() KR_EXCLUDES(mutex_) {
    SetThreadName("kr-timeline");
    Status status;
    for (bool last = false; !last && status.ok();) {
      last = AwaitWork();
      TakeSamples();
      status = Flush();
    }
    if (status.ok()) status = WriteEnd();
    if (!status.ok()) {
      KR_LOG(kWarning) << status.message() << "; it ends here";
    }
    MutexLock lock(mutex_);
    over_ = done_ = true;
    changed_.NotifyAll();
  }

  // Ends the recording. Returns whether everything was written in time.
  bool End(const std::string& reason, Deadline deadline) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    reason_ = reason;
    ending_ = true;
    changed_.NotifyAll();
    return changed_.WaitUntil(mutex_, deadline.at(),
                              [this]() KR_REQUIRES(mutex_) { return done_; });
  }

  bool over() const KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return over_;
  }

 private:
  static std::string PathOf(const TimelineOwner& owner,
                            const Settings& settings, const char* ending) {
    return settings.directory + "/rank." + std::to_string(owner.rank) + ending;
  }

  void AddOne(const TraceSpan& span, uint32_t thread) KR_REQUIRES(mutex_) {
    if (span.phase == TracePhase::kCycle && !marks_cycles_) return;
    if (records_.size() == capacity_) {
      ++dropped_;
      return;
    }
    TimelineRecord record;
    const bool moment = span.phase >= TracePhase::kCycle;
    record.kind = moment ? TimelineRecord::kMoment : TimelineRecord::kSpan;
    record.phase = static_cast<uint8_t>(span.phase);
    record.tensors = static_cast<uint16_t>(
        std::min<size_t>(span.tensors, std::numeric_limits<uint16_t>::max()));
    record.thread = thread;
    record.name = NumberOf(span.name);
    record.peer = span.peer;
    record.tag = span.tag;
    record.begin = Nanoseconds(span.begin);
    record.end = Nanoseconds(span.end);
    record.value = span.value;
    records_.push_back(record);
  }

  uint32_t NumberOf(std::string_view name) KR_REQUIRES(mutex_) {
    if (name.empty()) return 0;
    const auto found = numbers_.find(name);
    if (found != numbers_.end()) return found->second;
    if (names_.size() == kMaxNames) return 0;
    names_.emplace_back(name);
    const auto number = static_cast<uint32_t>(names_.size());
    numbers_.emplace(names_.back(), number);
    lines_ += R"({"type":"name","id":)" + std::to_string(number) +
              R"(,"text":)" + JsonText(name) + "}\n";
    return number;
  }

  // Waits for records to write. Returns whether they are the last ones.
  bool AwaitWork() KR_EXCLUDES(mutex_) {
    const TimePoint next = std::chrono::steady_clock::now() + kFlushEvery;
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, next, [this]() KR_REQUIRES(mutex_) {
      return ending_ || records_.size() >= capacity_ / 2;
    });
    over_ = ending_ || (until_ && std::chrono::steady_clock::now() >= *until_);
    return over_;
  }

  void TakeSamples() KR_EXCLUDES(mutex_) {
    if (!sample_) return;
    const std::vector<TimelineSample> samples = sample_();
    TimelineRecord record;
    record.kind = TimelineRecord::kSample;
    record.thread = ThreadNumber();
    record.begin = record.end = Nanoseconds(std::chrono::steady_clock::now());
    MutexLock lock(mutex_);
    for (const TimelineSample& sample : samples) {
      if (records_.size() == capacity_) return;
      record.name = NumberOf(sample.name);
      record.value = sample.value;
      records_.push_back(record);
    }
  }

  std::string TakeLines() KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::exchange(lines_, std::string());
  }

  // Names before the spans that have them.
  Status Flush() KR_EXCLUDES(mutex_) {
    std::string lines;
    {
      MutexLock lock(mutex_);
      lines.swap(lines_);
      records_.swap(written_);
    }
    KR_RETURN_IF_ERROR(lines_file_.Write(lines.data(), lines.size()));
    const Status status = spans_file_.Write(
        written_.data(), written_.size() * sizeof(TimelineRecord));
    written_.clear();
    // The first time it comes from nowhere.
    written_.reserve(capacity_);
    return status;
  }

  Status WriteEnd() KR_EXCLUDES(mutex_) {
    std::string line =
        R"({"type":"end","ended_ns":)" +
        std::to_string(Nanoseconds(std::chrono::steady_clock::now()));
    {
      MutexLock lock(mutex_);
      line += R"(,"dropped":)" + std::to_string(dropped_) + R"(,"reason":)" +
              JsonText(reason_) + "}\n";
    }
    return lines_file_.Write(line.data(), line.size());
  }

  const Sampler sample_;
  const bool marks_cycles_;
  const size_t capacity_;
  std::optional<TimePoint> until_;

  // Used by the writer only.
  Appended lines_file_;
  Appended spans_file_;
  std::vector<TimelineRecord> written_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::string lines_ KR_GUARDED_BY(mutex_);
  std::vector<TimelineRecord> records_ KR_GUARDED_BY(mutex_);
  uint64_t dropped_ KR_GUARDED_BY(mutex_) = 0;
  std::unordered_set<uint32_t> threads_ KR_GUARDED_BY(mutex_);
  std::deque<std::string> names_ KR_GUARDED_BY(mutex_);
  std::unordered_map<std::string_view, uint32_t> numbers_
      KR_GUARDED_BY(mutex_);  // of these
  std::string reason_ KR_GUARDED_BY(mutex_);
  bool ending_ KR_GUARDED_BY(mutex_) = false;
  bool over_ KR_GUARDED_BY(mutex_) = false;  // takes no more
  bool done_ KR_GUARDED_BY(mutex_) = false;  // and all is written
};

Timeline::Timeline(TimelineOwner owner, Sampler sample, size_t capacity)
    : TraceSink(on_),
      owner_(std::move(owner)),
      sample_(std::move(sample)),
      capacity_(capacity) {}

Timeline::~Timeline() { Stop("the rank has ended"); }

Status Timeline::Start(const Settings& settings) {
  MutexLock lock(mutex_);
  if (recording_ != nullptr && !recording_->over()) {
    return FailedPreconditionError(
        "a timeline is being recorded already; stop it first");
  }
  if (mkdir(settings.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return InternalError("cannot make the directory of the timeline, " +
                         settings.directory + ": " + ErrnoText(errno));
  }
  auto recording =
      std::make_shared<Recording>(owner_, settings, sample_, capacity_);
  KR_RETURN_IF_ERROR(recording->Open());
  if (!clock_.empty()) recording->AddLine(clock_);
  KR_ASSIGN_OR_RETURN(
      std::thread thread,
      StartThread("kr-timeline", [recording] { recording->Run(); }));
  thread.detach();
  recording_ = std::move(recording);
  on_ = true;
  return OkStatus();
}

void Timeline::Stop(const std::string& reason) {
  std::shared_ptr<Recording> recording;
  {
    MutexLock lock(mutex_);
    on_ = false;
    recording.swap(recording_);
  }
  if (recording == nullptr) return;
  if (!recording->End(reason, Deadline::After(kEndLimit))) {
    KR_LOG(kWarning) << "the end of this rank's timeline could not be written "
                        "in time: the disk does not answer";
  }
}

void Timeline::Record(const TraceSpan* spans, size_t count) {
  MutexLock lock(mutex_);
  if (recording_ != nullptr && !recording_->Add(spans, count)) on_ = false;
}

void Timeline::SetClock(TimePoint at, Duration offset, Duration error) {
  const auto number = [](Duration duration) {
    return std::to_string(std::chrono::nanoseconds(duration).count());
  };
  MutexLock lock(mutex_);
  clock_ = R"({"type":"clock","at_ns":)" + std::to_string(Nanoseconds(at)) +
           R"(,"offset_ns":)" + number(offset) + R"(,"error_ns":)" +
           number(error) + "}\n";
  if (recording_ != nullptr) recording_->AddLine(clock_);
}

ProcessSetTrace::ProcessSetTrace(std::shared_ptr<Timeline> timeline,
                                 uint32_t process_set)
    : TraceSink(timeline->on()),
      timeline_(std::move(timeline)),
      process_set_(process_set) {}

void ProcessSetTrace::Record(const TraceSpan* spans, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    TraceSpan span = spans[i];
    if (span.tag != 0) span.tag |= process_set_ << kTagBits;
    timeline_->Record(&span, 1);
  }
}

}  // namespace keras_ring
