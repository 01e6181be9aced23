// BucketGate: holds requests back until the bucket that is planned for them is
// complete on this rank.
#ifndef KERAS_RING_CONTROL_BUCKET_GATE_H_
#define KERAS_RING_CONTROL_BUCKET_GATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/control/request.h"

namespace keras_ring {

// One release per bucket instead of one per tensor: that saves waking the
// control thread and sending a message for each. Nothing is held for long: a
// bucket for which nothing has come for kMaxHold is released in part, and
// requests that are not planned are released at once.
class BucketGate {
 public:
  static constexpr Duration kMaxHold = std::chrono::milliseconds(2);

  // Each bucket is a list of request names. Appends the held requests to
  // `released`.
  void SetPlan(const std::vector<std::vector<std::string>>& buckets,
               std::vector<RequestPtr>& released);

  // Appends the requests that may go on to `released`: none, `request`, or its
  // whole bucket.
  void Add(const RequestPtr& request, TimePoint now,
           std::vector<RequestPtr>& released);

  bool holds() const { return holding_ > 0; }
  // Returns when the next incomplete bucket is released in part.
  std::optional<TimePoint> NextRelease() const;
  void ReleaseDue(TimePoint now, std::vector<RequestPtr>& released);

  void Clear() { *this = BucketGate(); }

 private:
  struct Bucket {
    size_t size = 0;
    uint64_t round = 1;
    size_t came = 0;       // in this round
    bool partial = false;  // this round goes on in part
    std::vector<RequestPtr> held;
    TimePoint last;  // when the last of those came
  };
  struct Member {
    int bucket = 0;
    uint64_t round = 0;  // in which it last came
  };

  void Release(Bucket& bucket, std::vector<RequestPtr>& released);

  std::vector<Bucket> buckets_;
  std::unordered_map<std::string, Member> members_;
  size_t holding_ = 0;  // buckets
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_BUCKET_GATE_H_
