#include "csrc/runtime/diagnostics/flight_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "csrc/base/digest_text.h"
#include "csrc/base/json_text.h"
#include "csrc/base/sha256.h"

namespace keras_ring {
namespace {

// For all ranks together, some 300 MB; but at least enough for a step of many
// models per rank.
constexpr size_t kMaxRecordsOfJob = 1 << 20;
constexpr size_t kFewestRecords = 256;

constexpr int kFormat = 1;

std::string HostName() {
  char name[256] = "";
  (void)gethostname(name, sizeof(name) - 1);
  return name;
}

std::string List(const std::vector<int>& numbers) {
  std::string text = "[";
  for (int number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

std::string SecondsOf(std::chrono::duration<double> duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f", duration.count());
  return text;
}

// Converts times to the wall clock, which the hosts have in common.
class WallClock {
 public:
  // Null for a time that is not set.
  std::string Show(TimePoint at) const {
    if (at == TimePoint()) return "null";
    return SecondsOf(system_.time_since_epoch() + (at - steady_));
  }
  std::string Now() const { return SecondsOf(system_.time_since_epoch()); }

 private:
  const std::chrono::system_clock::time_point system_ =
      std::chrono::system_clock::now();
  const TimePoint steady_ = std::chrono::steady_clock::now();
};

void AppendTensors(const std::vector<TensorSpec>& tensors,
                   std::ostringstream& text) {
  text << "[";
  for (size_t i = 0; i < tensors.size(); ++i) {
    text << (i ? ", " : "") << "[" << JsonText(DTypeName(tensors[i].dtype));
    for (int64_t rows : tensors[i].shape) text << ", " << rows;
    text << "]";
  }
  text << "]";
}

void AppendRecord(const FlightRecord& record, const WallClock& clock,
                  std::ostringstream& text) {
  const Request& request = *record.request;
  text << "{\"number\": " << record.number
       << ", \"name\": " << JsonText(request.name)
       << ", \"kind\": " << JsonText(RequestKindName(request.kind));
  if (IsReduction(request.kind)) {
    text << ", \"op\": " << JsonText(ReduceOpName(request.op));
  }
  if (request.kind == RequestKind::kBroadcast) {
    text << ", \"root\": " << request.root;
  }
  text << ", \"tensors\": ";
  AppendTensors(request.tensors, text);
  text << ", \"state\": " << JsonText(FlightStateName(record.state));
  text << ", \"decision\": ";
  if (record.decided == TimePoint()) {
    text << "null";
  } else {
    text << record.decision;
  }
  if (record.last.rank != LastReady::kNone) {
    text << ", \"last_rank\": " << record.last.rank
         << ", \"late\": " << SecondsOf(record.last.late);
  }
  text << ", \"submitted\": " << clock.Show(record.submitted)
       << ", \"decided\": " << clock.Show(record.decided)
       << ", \"ended\": " << clock.Show(record.ended);
  if (!record.error.empty()) text << ", \"error\": " << JsonText(record.error);
  text << "}";
}

Status WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return InternalError(ErrnoText(errno));
    done += wrote;
  }
  return OkStatus();
}

}  // namespace

std::string FlightLogText(const FlightLog& log) {
  const WallClock clock;
  std::ostringstream text;
  text << "{\"format\": " << kFormat << ", \"rank\": " << log.rank
       << ", \"members\": " << List(log.members)
       << ", \"process_set\": " << log.process_set
       << ", \"host\": " << JsonText(HostName()) << ", \"pid\": " << getpid()
       << ", \"written\": " << clock.Now()
       << ", \"reason\": " << JsonText(log.reason) << ",\n \"records\": [";
  for (size_t i = 0; i < log.records.size(); ++i) {
    text << (i ? ",\n  " : "\n  ");
    AppendRecord(log.records[i], clock, text);
  }
  text << "]}\n";
  return text.str();
}

std::string FlightDirectory(const Options& options) {
  if (options.flight_directory == "off") return "";
  if (!options.flight_directory.empty()) return options.flight_directory;
  // Without other ranks there is nothing to compare.
  if (options.job_key.empty()) return "";
  return "/tmp/keras-ring-flight-" + std::to_string(getuid()) + "-" +
         HexText(HmacSha256(options.job_key, "flight directory"), 8);
}

size_t NumLoggedRecords(int job_size) {
  return std::clamp(kMaxRecordsOfJob / static_cast<size_t>(job_size),
                    kFewestRecords, FlightRecorder::kUsualCapacity);
}

std::vector<FlightRecord> NewestRecords(std::vector<FlightRecord> records,
                                        size_t count) {
  if (records.size() <= count) return records;
  const auto newest = records.end() - static_cast<std::ptrdiff_t>(count);
  const auto kept =
      std::remove_if(records.begin(), newest, [](const FlightRecord& record) {
        return record.state == FlightState::kDone ||
               record.state == FlightState::kFailed;
      });
  records.erase(kept, newest);
  return records;
}

Result<std::string> WriteFlightLog(const std::string& directory,
                                   const FlightLog& log) {
  std::string path = directory + "/flight." + std::to_string(log.rank) + "." +
                     std::to_string(getpid());
  if (log.process_set != 0) {
    path += ".set." + std::to_string(log.process_set);
  }
  path += ".json";
  auto failed = [&path](const std::string& why) {
    return InternalError("cannot write the flight record " + path + ": " + why);
  };
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed(ErrnoText(errno));
  }
  const std::string part = path + ".part";
  // A name that others may have put there first is not followed.
  (void)unlink(part.c_str());
  const int fd =
      open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed(ErrnoText(errno));
  const Status written = WriteAll(fd, FlightLogText(log));
  close(fd);
  if (!written.ok()) {
    (void)unlink(part.c_str());
    return failed(written.message());
  }
  if (rename(part.c_str(), path.c_str()) != 0) return failed(ErrnoText(errno));
  return path;
}

}  // namespace keras_ring
