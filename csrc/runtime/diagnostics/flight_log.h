// FlightLog: the contents of a rank's flight recorder, as a file for
// `keras-ring doctor`.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_H_

#include <cstddef>
#include <string>
#include <vector>

#include "csrc/base/options.h"
#include "csrc/base/status.h"
#include "csrc/control/flight_recorder.h"

namespace keras_ring {

struct FlightLog {
  int rank = 0;
  std::vector<int> members = {0};  // of the process set: ranks of the job
  uint32_t process_set = 0;        // its number, 0 for the whole job
  std::string reason;              // why it is written
  std::vector<FlightRecord> records;
};

// Returns how many records a rank of a job of this size writes: all that it
// has, or fewer, so that the logs of all ranks together, often on one disk, do
// not grow with the job.
size_t NumLoggedRecords(int job_size);
// `records` is ordered oldest first. Returns the newest `count` of them, and of
// the others those that have not ended.
std::vector<FlightRecord> NewestRecords(std::vector<FlightRecord> records,
                                        size_t count);

// Returns JSON: the fields above and "format", "host", "pid", "written"; for
// each record its fields, and its request's name, kind, op, root and tensors.
// Times are seconds since the epoch, null for events that have not happened.
std::string FlightLogText(const FlightLog& log);

// Returns the directory for the logs of a job: the one in its options or, if
// they name none, one under /tmp that all its ranks on this host use. Empty:
// none.
std::string FlightDirectory(const Options& options);

// Writes the log to DIRECTORY/flight.RANK.PID.json (for a process set:
// flight.RANK.PID.set.NUMBER.json), atomically, readable by this user only;
// creates the directory if needed. It replaces the earlier log of this process,
// and no other: jobs may share the directory, and a later generation of a job
// may have assigned the rank to another process. Returns the path.
Result<std::string> WriteFlightLog(const std::string& directory,
                                   const FlightLog& log);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_H_
