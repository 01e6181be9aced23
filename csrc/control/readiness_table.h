// ReadinessTable: the names that some of a node's subtrees are ready with.
#ifndef KERAS_RING_CONTROL_READINESS_TABLE_H_
#define KERAS_RING_CONTROL_READINESS_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/name_table.h"
#include "csrc/control/participants.h"
#include "csrc/control/request.h"
#include "csrc/control/response_cache.h"
#include "csrc/control/stall_inspector.h"

namespace keras_ring {

class ReadinessTable {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // All ranks of this node's subtree are ready with the same slot.
    virtual void OnSlotComplete(ResponseCache::Slot slot,
                                std::shared_ptr<const Response> agreed,
                                const LastReady& last) = 0;
    // All of them are ready with the name, but differ or name no slot.
    virtual void OnVariantsComplete(const std::string& name,
                                    std::vector<RequestVariant> variants,
                                    const LastReady& last) = 0;
    // A rank has asked for something that may have to wait. `first`: nothing
    // waited before.
    virtual void OnPending(TimePoint now, bool first) = 0;
  };

  // All references must outlive the table.
  ReadinessTable(const ControlTree& tree, const Participants& participants,
                 const ResponseCache& cache, const Clock& clock,
                 Listener& listener)
      : tree_(tree),
        participants_(participants),
        cache_(cache),
        clock_(clock),
        listener_(listener) {}

  struct Contributor {
    int from = 0;          // this rank or a child
    uint64_t sent_at = 0;  // the number of decisions it had applied
    LastReady last;        // of the ranks that it speaks for
  };
  // A contributor is ready with a name. An error if it has said so before.
  Status Contribute(const Contributor& who, ResponseCache::Slot slot,
                    std::shared_ptr<const Response> agreed);
  Status Contribute(const Contributor& who,
                    std::vector<RequestVariant> variants);
  // Completes the names that were waiting only for a rank that has joined.
  void CompleteWithoutJoined();

  // Decision number `sequence` has failed the name.
  void Fail(const std::string& name, uint64_t sequence);
  // Returns whether contributions to the name that were sent after `sent_at`
  // decisions belong to a use that has failed.
  bool HasFailedSince(const std::string& name, uint64_t sent_at) const;
  // All ranks below have applied the decisions up to this one.
  void ForgetFailed(uint64_t everyone);
  void Clear() {
    by_slot_.Clear();
    pending_.Clear();
  }

  bool empty() const { return pending_.empty(); }
  size_t size() const { return pending_.size(); }
  bool Pends(const std::string& name) const { return pending_.Contains(name); }
  // Returns the names that wait, in no order.
  std::vector<StalledTensor> List() const;

  // A lower bound of the time since which any name pends, so that not every
  // step has to search: nothing has pended for longer.
  TimePoint oldest() const { return oldest_; }
  void RefreshOldest(TimePoint now);
  // Ends a batch. Contributions within a batch share one time: reading the
  // clock for each tensor would cost more than the tensor.
  void EndBatch() { batch_time_.reset(); }

 private:
  struct Pending {
    // Slot, if every contribution so far named this same one.
    std::optional<ResponseCache::Slot> slot;
    std::shared_ptr<const Response> agreed;  // of the slot
    std::vector<RequestVariant> variants;    // the others
    std::vector<int> from;                   // contributors: self and children
    TimePoint since;                         // the first of them
    TimePoint last;                          // the last of them
    TimePoint first_ready;                   // the first rank of all
    int32_t last_rank = 0;                   // the last one

    void Clear();
  };
  using Entry = NameTable<Pending>::value_type;  // and its name
  struct EntryOfSlot {
    Entry* entry = nullptr;
    void Clear() { entry = nullptr; }
  };

  // Returns the entry to add a contribution to; null if the contribution
  // belongs to a use of the name that has failed since.
  Entry* EntryFor(const std::string& name, uint64_t sent_at);
  // Returns the entry that pends under this slot; null if there is none.
  Entry* EntryOf(ResponseCache::Slot slot);
  Status AddContributor(Entry& entry, const Contributor& who);
  // Notes that all contributions so far name this slot.
  void SetSlot(Entry& entry, ResponseCache::Slot slot,
               std::shared_ptr<const Response> agreed);
  // Notes that they no longer name a single slot.
  void ResetSlot(Pending& pending);
  void Erase(Entry& entry);
  TimePoint BatchTime();
  // The slot no longer stands for all contributions: adds those that it stood
  // for in full.
  void ExpandSlot(Pending& pending, int from) const;
  void ExpandOthers(Pending& pending, int from) const;
  void CompleteIfReady(Entry& entry);

  const ControlTree& tree_;
  const Participants& participants_;
  const ResponseCache& cache_;
  const Clock& clock_;
  Listener& listener_;
  // A rank joins only when nothing of it is in flight, so none of its
  // contributions is pending, either: a name that its join completes is
  // complete without it.
  NameTable<Pending> pending_;
  // The entries with a slot. Finding them by slot is faster than by name, which
  // matters if each name has many contributors.
  NameTable<EntryOfSlot, ResponseCache::Slot> by_slot_;
  // Names that a decision has failed, with its number: a contribution that was
  // sent before the sender knew must not count for the next use.
  std::unordered_map<std::string, uint64_t> failed_;
  TimePoint oldest_;
  std::optional<TimePoint> batch_time_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_READINESS_TABLE_H_
