// StatusPage: a file in memory that holds this rank's counters, so that other
// programs of the same user can read them while it runs.
//
// Reading costs the job nothing, and a rank that is killed leaves its counters
// behind.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_STATUS_PAGE_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_STATUS_PAGE_H_

#include <memory>
#include <string>

#include "csrc/base/counters.h"
#include "csrc/base/options.h"
#include "csrc/base/status.h"

namespace keras_ring {

// Its layout, for readers: little endian, as the hosts are.
struct StatusPageLayout {
  static constexpr char kMagic[] = "KRSTATUS";  // at 0, without the zero
  static constexpr uint32_t kVersion = 1;       // at 8
  // At 12: the length of the text at 64, a JSON object that does not change.
  // Its "counters" has [name, unit, offset] for each 64-bit number.
  static constexpr size_t kText = 64;
  static constexpr size_t kCounters = 8192;
  // A number that is odd while the error is written, its length, and the text.
  static constexpr size_t kError = 12288;
  static constexpr size_t kErrorBytes = 1016;
  static constexpr size_t kBytes = 16384;
};

class StatusPage {
 public:
  // Creates DIRECTORY/JOB/rank.N.PID.page, which readers skip until it is
  // published. Two jobs may have one key, hence one directory, and generations
  // of a job number their ranks anew. So the page of a live process is left
  // alone, and so are those of dead processes, except by a new job (generation
  // 0), which removes the pages left under its rank. Errors say why it cannot;
  // the job runs well without a page. Null: the options disable it.
  static Result<std::shared_ptr<StatusPage>> Create(const Options& options);
  // Unmaps the page. Removes the file, too, unless it holds an error, or the
  // rank has made another one of that name in its next generation.
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  // Adds the identity of this rank, and makes the page visible to readers.
  Status Publish(const Options& options, int local_rank,
                 const std::string& host);
  Counters& counters() { return *counters_; }
  // Stores the reason why the job is over. One thread only.
  void SetError(const std::string& text);

  const std::string& path() const { return path_; }

 private:
  StatusPage(std::string path, char* memory, uint64_t inode);

  const std::string path_;
  char* const memory_;
  const uint64_t inode_;  // of its file
  Counters* const counters_;
  bool has_error_ = false;
};

// Returns the name of the job's directory: the same for all of its ranks, and
// for the launcher. It reveals nothing about the key.
std::string StatusJobName(const Options& options);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_STATUS_PAGE_H_
