// FlightLog: what the flight recorder of a rank remembers, as a file for
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

// How many records a rank of so large a job writes: all that it has, or fewer
// so that the logs of all ranks together, often on one disk, do not grow with
// the job.
size_t NumLoggedRecords(int job_size);
// Of these, which are oldest first, so many of the newest, and of the others
// those that have not ended.
std::vector<FlightRecord> NewestRecords(std::vector<FlightRecord> records,
                                        size_t count);

// As JSON: the fields above and "format", "host", "pid", "written"; of each
// record its fields, of its request name, kind, op, root and tensors. Times are
// seconds since the epoch, null for what has not happened.
std::string FlightLogText(const FlightLog& log);

// The directory for the logs of a job: what its options say or, if they say
// nothing, one under /tmp that all its ranks on this host come to. Empty: none.
std::string FlightDirectory(const Options& options);

// Writes it to DIRECTORY/flight.RANK.PID.json (of a process set:
// flight.RANK.PID.set.NUMBER.json), whole or not at all, for this user alone;
// makes the directory if it must. It takes the place of what this process wrote
// before, and of no other's: jobs may share the directory, and a later
// generation of a job may have given the rank to another process. The path.
Result<std::string> WriteFlightLog(const std::string& directory,
                                   const FlightLog& log);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_H_
