// What the ranks of a forming job tell each other through the store, and the
// judgement over it. Values in, values out: no sockets here.
#ifndef KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_
#define KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/store/store.h"

namespace keras_ring {

// One rank's application.
struct MemberRecord {
  int rank = 0;
  int size = 0;
  Member member;
  // The number this rank gave itself; see Hello::target. Random, so it also
  // tells two processes with one rank apart.
  uint64_t target = 0;
  std::vector<std::string> fingerprint;
};

// Rank 0's verdict: the table of the job, or why there is none.
struct JobTable {
  Status status;
  std::vector<Member> members;    // by rank
  std::vector<uint64_t> targets;  // by rank
  // Until rank 0 gives up the start. On the wire in milliseconds.
  Duration time_left = Duration::zero();
};

inline constexpr char kMemberPrefix[] = "join/";
inline constexpr char kTableKey[] = "table";
std::string JoinKey(const MemberRecord& record);

std::string Encode(const MemberRecord& record);
std::string Encode(const JobTable& table);
bool Decode(std::string_view bytes, MemberRecord* record);
bool Decode(std::string_view bytes, JobTable* table);

// The records in `entries`; malformed ones are an error.
Result<std::vector<MemberRecord>> DecodeRecords(const StoreEntries& entries);

// Whether these ranks can still become one job: kInvalidArgument when two have
// the same rank, or another size than rank 0's `size`.
Status CheckRanks(const std::vector<MemberRecord>& records, int size);

// kFailedPrecondition, naming each property that differs, the ranks and their
// values.
Status CompareFingerprints(const std::vector<MemberRecord>& records);

// The error of a job that was not complete in time.
Status MissingRanks(const std::vector<MemberRecord>& records, int size);

// `records`: exactly one for each rank.
JobTable MakeTable(const std::vector<MemberRecord>& records);

// "rank 3", "ranks 0-2, 5".
std::string RankNames(std::vector<int> ranks);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_
