// The messages by which the ranks of an elastic job learn who its members are.
//
// The launcher alone decides that. It starts each rank with one end of a socket
// pair of its own, of type SOCK_SEQPACKET, so that no other process can speak
// for either side. When a generation of the job has lost a rank, its other
// ranks each send a MemberReport. Once all that live have done so, each is sent
// the NextGeneration, or the reason why there is none.
//
// A process that is to join a job which runs reports as well, and waits. The
// ranks are told how many do. They report that they are between two steps when
// they have agreed to let them in.
//
// The launcher may also say that a generation is over: it knows that a host is
// gone whose ranks have just become silent for the others.
#ifndef KERAS_RING_COMM_RENDEZVOUS_MEMBERSHIP_H_
#define KERAS_RING_COMM_RENDEZVOUS_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"

namespace keras_ring {

// How far a rank has come in the steps of a commit group.
struct StepReport {
  std::string group;
  uint64_t settled = 0;  // steps of which it knows the outcome
  bool begun = false;    // an operation of the next one has run
  bool whole = false;    // all have ended well, and it waits for the commit
};

enum class StepOutcome : uint8_t {
  kOpen = 0,       // nothing has run: it goes on in the next generation
  kCommitted = 1,  // complete on all
  kDiscarded = 2,
};

// What becomes of a step that was open when the job lost a rank. The step
// before it is committed, for a rank that waits for that yet.
struct StepSettlement {
  std::string group;
  uint64_t step = 0;
  StepOutcome outcome = StepOutcome::kOpen;
};

enum class MemberStand : uint8_t {
  kLeft = 0,    // its generation has ended
  kAdmits = 1,  // it is between two steps: others may come in
  kJoins = 2,   // it is of no generation yet
};

struct MemberReport {
  MemberStand stand = MemberStand::kLeft;
  uint64_t generation = 0;  // its last
  // Where this rank would serve the store of the next generation.
  std::string host;
  uint16_t port = 0;
  std::string cause;  // why it has left that, for people
  std::vector<StepReport> steps;
};

struct NextGeneration {
  uint64_t generation = 0;
  // All members were between two steps, and who waited has come in.
  bool admitted = false;
  int32_t rank = 0;
  // The processes that it is made of, by their ranks: each has the rank that it
  // had at the start of the job, or one that no process had before.
  std::vector<int32_t> members = {0};
  // Where its rank 0 serves the store.
  std::string host;
  uint16_t port = 0;
  std::vector<StepSettlement> settled;
};

std::string EncodeReport(const MemberReport& report);
Result<MemberReport> DecodeReport(std::string_view bytes);
std::string EncodeNext(const NextGeneration& next);
std::string EncodeEnd(const std::string& reason);
std::string EncodeWaiting(uint64_t processes);
std::string EncodeOver(uint64_t generation, const std::string& reason);
// Returns the number of processes that wait to come in, if the bytes say that.
std::optional<uint64_t> DecodeWaiting(std::string_view bytes);
struct GenerationOver {
  uint64_t generation = 0;
  std::string reason;
};
// Returns which generation is over, if the bytes say that.
std::optional<GenerationOver> DecodeOver(std::string_view bytes);
// kUnavailable, with the reason, if the bytes say that there is none.
Result<NextGeneration> DecodeNext(std::string_view bytes);

// This rank's end of its connection with the launcher.
class Membership {
 public:
  virtual ~Membership() = default;
  // Begins to read what the launcher says. To be called once, before all else.
  // `on_over` is called by another thread, until Stop, and must not block.
  using OnOver = std::function<void(const GenerationOver& over)>;
  virtual Status Watch(OnOver on_over) = 0;
  // Ends that: another one may read the same descriptor then.
  virtual void Stop() = 0;
  virtual Status Send(const MemberReport& report) = 0;
  // Waits for the answer to the last report. kCancelled once `stopped` returns
  // true, which is asked every now and then; kUnavailable if the job ends.
  virtual Result<NextGeneration> Await(
      Deadline deadline, const std::function<bool()>& stopped) = 0;
  // Returns how many processes wait to come in, as far as this rank has been
  // told. Any thread; does not wait.
  virtual uint64_t NumWaiting() = 0;
};

// Over an inherited descriptor, which it does not close. kInvalidArgument if
// that is no such socket.
Result<std::unique_ptr<Membership>> OpenMembership(int fd);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_MEMBERSHIP_H_
