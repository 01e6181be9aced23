// StatusPage: a file in memory in which this rank's counters lie, so that other
// programs of the same user can read them while it runs.
//
// The job does nothing for whoever looks, and a rank that is killed leaves what
// it had counted.
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
  // At 12 how long the text at 64 is: a JSON object that does not change. Its
  // "counters" has [name, unit, offset] for each number of 64 bits.
  static constexpr size_t kText = 64;
  static constexpr size_t kCounters = 8192;
  // A number that is odd while the error is written, its length, and it.
  static constexpr size_t kError = 12288;
  static constexpr size_t kErrorBytes = 1016;
  static constexpr size_t kBytes = 16384;
};

class StatusPage {
 public:
  // Makes DIRECTORY/JOB/rank.N.PID.page, which readers pass over until it is
  // published. Two jobs may have one key, hence one directory, and generations
  // of a job number their ranks anew: so the page of a process that lives is
  // left alone, and so are those of the dead but for a new job's (generation
  // 0), which removes what was left under its rank. Errors say why it cannot;
  // the job does well without. Null: the options want none.
  static Result<std::shared_ptr<StatusPage>> Create(const Options& options);
  // Unmaps it. The file goes too, unless an error is in it.
  ~StatusPage();
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  // Says whose it is.
  Status Publish(const Options& options, int local_rank,
                 const std::string& host);
  Counters& counters() { return *counters_; }
  // Shows why the job is over. From one thread.
  void SetError(const std::string& text);

  const std::string& path() const { return path_; }

 private:
  StatusPage(std::string path, char* memory);

  const std::string path_;
  char* const memory_;
  Counters* const counters_;
  bool has_error_ = false;
};

// The name of the job's directory: the same for all of its ranks, and for the
// launcher. It tells nothing about the key.
std::string StatusJobName(const Options& options);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_STATUS_PAGE_H_
