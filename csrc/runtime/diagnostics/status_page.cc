#include "csrc/runtime/diagnostics/status_page.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <utility>

#include "csrc/base/digest_text.h"
#include "csrc/base/json_text.h"
#include "csrc/base/sha256.h"

namespace keras_ring {
namespace {

using Layout = StatusPageLayout;

static_assert(Layout::kCounters + sizeof(Counters) <= Layout::kError);
static_assert(Layout::kCounters % alignof(Counters) == 0);
static_assert(Counters::Count::is_always_lock_free);

std::string RawKey(const std::string& hexadecimal) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hexadecimal.size(); i += 2) {
    bytes +=
        static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Creates a directory that no other user can access, or finds it.
Status EnsurePrivate(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return InternalError("cannot make " + directory + ": " + ErrnoText(errno));
  }
  struct stat found;
  if (lstat(directory.c_str(), &found) != 0) {
    return InternalError(directory + ": " + ErrnoText(errno));
  }
  if (!S_ISDIR(found.st_mode) || found.st_uid != getuid() ||
      (found.st_mode & 077) != 0) {
    return FailedPreconditionError(
        directory +
        " is not a directory that belongs to this user alone (mode 0700); "
        "remove it, or name another one by KERAS_RING_STATUS_DIR");
  }
  return OkStatus();
}

// In the form in which `ps` shows it.
std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line((std::istreambuf_iterator<char>(file)),
                   std::istreambuf_iterator<char>());
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  constexpr size_t kMaxLine = 1024;
  if (line.size() > kMaxLine) {
    line.resize(kMaxLine);
    // Not in the middle of a character.
    while (!line.empty() && (line.back() & 0xC0) == 0x80) line.pop_back();
    if (!line.empty() && (line.back() & 0x80) != 0) line.pop_back();
  }
  return line;
}

std::string WorkingDirectory() {
  char path[PATH_MAX] = "";
  return getcwd(path, sizeof(path)) == nullptr ? "" : path;
}

template <typename Clock>
std::string NowText() {
  return std::to_string(
      std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
}

std::string Describe(const Options& options, int local_rank,
                     const std::string& host) {
  std::string text =
      R"({"rank":)" + std::to_string(options.rank) + R"(,"size":)" +
      std::to_string(options.size) + R"(,"local_rank":)" +
      std::to_string(local_rank) + R"(,"host":)" + JsonText(host) +
      R"(,"pid":)" + std::to_string(getpid()) + R"(,"job":)" +
      JsonText(StatusJobName(options)) + R"(,"started_unix_ns":)" +
      NowText<std::chrono::system_clock>() + R"(,"started_ns":)" +
      NowText<std::chrono::steady_clock>() + R"(,"command":)" +
      JsonText(CommandLine()) + R"(,"cwd":)" + JsonText(WorkingDirectory()) +
      R"(,"counters":[)";
  // The offset of a member in any object of the class.
  const Counters probe;
  for (const CounterDescription& row : DescribeCounters()) {
    const auto offset = reinterpret_cast<const char*>(&(probe.*row.count)) -
                        reinterpret_cast<const char*>(&probe);
    if (text.back() != '[') text += ',';
    text += "[" + JsonText(row.name) + "," + JsonText(row.unit) + "," +
            std::to_string(static_cast<int64_t>(Layout::kCounters) + offset) +
            "]";
  }
  return text + "]}";
}

uint64_t InodeOf(const std::string& path) {
  struct stat found = {};
  return stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
}

Result<char*> MapNew(const std::string& path) {
  auto failed = [&path] {
    return InternalError("cannot make the status page " + path + ": " +
                         ErrnoText(errno));
  };
  (void)unlink(path.c_str());
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed();
  // With room on the disk, which a write to the mapping could not ask for.
  errno = posix_fallocate(fd, 0, Layout::kBytes);
  void* memory = errno != 0 ? MAP_FAILED
                            : mmap(nullptr, Layout::kBytes,
                                   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) {
    (void)unlink(path.c_str());
    errno = error;
    return failed();
  }
  return static_cast<char*>(memory);
}

// Removes the pages STEM + PID + ".page" of processes that have ended.
void RemoveOfTheDead(const std::string& stem) {
  glob_t found = {};
  if (glob((stem + "*.page").c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      const char* const path = found.gl_pathv[i];
      char* end = nullptr;
      const long pid = std::strtol(path + stem.size(), &end, 10);
      if (pid > 0 && std::strcmp(end, ".page") == 0 &&
          kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) {
        (void)unlink(path);
      }
    }
  }
  globfree(&found);
}

void Put32(char* at, uint32_t value) { std::memcpy(at, &value, sizeof(value)); }

}  // namespace

std::string StatusJobName(const Options& options) {
  if (options.job_key.empty()) return "pid-" + std::to_string(getpid());
  return HexText(Sha256Of("keras_ring status page" + RawKey(options.job_key)),
                 6);
}

Result<std::shared_ptr<StatusPage>> StatusPage::Create(const Options& options) {
  std::string directory = options.status_directory;
  if (directory == "off") return std::shared_ptr<StatusPage>();
  if (directory.empty()) {
    directory = "/tmp/keras-ring-status-" + std::to_string(getuid());
  }
  KR_RETURN_IF_ERROR(EnsurePrivate(directory));
  directory += "/" + StatusJobName(options);
  KR_RETURN_IF_ERROR(EnsurePrivate(directory));
  const std::string stem =
      directory + "/rank." + std::to_string(options.rank) + ".";
  if (options.generation == 0) RemoveOfTheDead(stem);
  const std::string path = stem + std::to_string(getpid()) + ".page";
  KR_ASSIGN_OR_RETURN(char* const memory, MapNew(path));
  return std::shared_ptr<StatusPage>(
      new StatusPage(path, memory, InodeOf(path)));
}

Status StatusPage::Publish(const Options& options, int local_rank,
                           const std::string& host) {
  const std::string text = Describe(options, local_rank, host);
  if (Layout::kText + text.size() > Layout::kCounters) {
    return InternalError("the description of the status page " + path_ +
                         " has " + std::to_string(text.size()) +
                         " bytes: too many");
  }
  std::memcpy(memory_ + Layout::kText, text.data(), text.size());
  Put32(memory_ + 8, Layout::kVersion);
  Put32(memory_ + 12, static_cast<uint32_t>(text.size()));
  // Last: now it is one.
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(memory_, Layout::kMagic, sizeof(Layout::kMagic) - 1);
  return OkStatus();
}

StatusPage::StatusPage(std::string path, char* memory, uint64_t inode)
    : path_(std::move(path)),
      memory_(memory),
      inode_(inode),
      counters_(new (memory + Layout::kCounters) Counters) {}

StatusPage::~StatusPage() {
  if (!has_error_ && InodeOf(path_) == inode_) {
    (void)unlink(path_.c_str());
    // Succeeds for the last rank of the host.
    (void)rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }
  (void)munmap(memory_, Layout::kBytes);
}

void StatusPage::SetError(const std::string& text) {
  has_error_ = true;
  auto* const sequence =
      reinterpret_cast<std::atomic<uint32_t>*>(memory_ + Layout::kError);
  sequence->fetch_add(1);
  const size_t bytes = std::min(text.size(), Layout::kErrorBytes);
  Put32(memory_ + Layout::kError + 4, static_cast<uint32_t>(bytes));
  std::memcpy(memory_ + Layout::kError + 8, text.data(), bytes);
  sequence->fetch_add(1);
}

}  // namespace keras_ring
