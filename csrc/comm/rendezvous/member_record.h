// The messages of a forming job's ranks in the store, and the checks on them.
// Values in, values out: no sockets here.
#ifndef KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_
#define KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/comm/rendezvous/mesh.h"

namespace keras_ring {

// The record with which one rank joins.
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
  // Time left until rank 0 gives up the start. On the wire in milliseconds.
  Duration time_left = Duration::zero();
};

inline constexpr char kMemberPrefix[] = "join/";
inline constexpr char kTableKey[] = "table";
// A rank that gives up before rank 0 does asks who is missing: it sets the
// first key plus its rank. The answer has the second key: a table with that
// status.
inline constexpr char kLatePrefix[] = "late/";
inline constexpr char kMissingPrefix[] = "missing/";
std::string JoinKey(const MemberRecord& record);

std::string Encode(const MemberRecord& record);
std::string Encode(const JobTable& table);
bool Decode(std::string_view bytes, MemberRecord* record);
bool Decode(std::string_view bytes, JobTable* table);

// Collects the records of a job as they come: the time for each does not grow
// with the number of records that are there.
class MemberRecords {
 public:
  explicit MemberRecords(int size) : size_(size) {}
  // kInternal if the record is malformed; kInvalidArgument, naming both ranks,
  // if its rank is taken or its size differs from rank 0's.
  Status Add(const std::string& key, std::string_view bytes);
  void Remove(const std::string& key);
  bool complete() const {
    return by_rank_.size() == static_cast<size_t>(size_);
  }
  // Returns the records, by rank.
  std::vector<MemberRecord> Take();
  // Returns the error of a job that is not complete in time.
  Status Missing() const;

 private:
  const int size_;
  std::map<int, MemberRecord> by_rank_;
  std::map<std::string, int> ranks_;  // by key
};

// Returns kFailedPrecondition if fingerprints differ, naming each property that
// does, the ranks and their values.
Status CompareFingerprints(const std::vector<MemberRecord>& records);

// `records`: exactly one per rank.
JobTable MakeTable(const std::vector<MemberRecord>& records);

// "rank 3", "ranks 0-2, 5".
std::string RankNames(std::vector<int> ranks);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_MEMBER_RECORD_H_
