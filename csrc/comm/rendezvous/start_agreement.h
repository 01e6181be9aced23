// The end of a job's start: it has begun on all ranks or on none.
//
// A rank that is lost while links are made is seen by those that wait for it;
// these give up, and whoever waits for them sees no more than that. So each
// tells rank 0 how it went, through the store, and rank 0 all of them whom
// there is to blame. It does so as soon as it knows, and each has asked for it
// before it waits for links.
#ifndef KERAS_RING_COMM_RENDEZVOUS_START_AGREEMENT_H_
#define KERAS_RING_COMM_RENDEZVOUS_START_AGREEMENT_H_

#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/store/store.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {

// Where a rank's word stands. An empty one: it went without.
std::string StartedKey(int rank);
// Where rank 0's stands, and what it is.
inline constexpr char kVerdictKey[] = "verdict";
std::string EncodeVerdict(const Status& verdict);
// A verdict: this rank is lost.
Status LostAtStart(int rank, const std::vector<Member>& members,
                   const std::string& why);

// Rank 0. `own`: how the start went here; `deadline`: when the others have
// given up at the latest, too.
Status AgreeAsRankZero(TcpStoreServer& server,
                       const std::vector<Member>& members, const Status& own,
                       Deadline deadline);
// Any other rank: before it waits for links. From then on something to read
// from the store's socket means that the start has failed, or rank 0 has gone.
uint64_t AskForVerdict(TcpStoreClient& store);
// And then. `asked`: what AskForVerdict returned; `through`: whose store it is,
// rank 0's or that of the relay of this host.
Status AgreeAsOther(TcpStoreClient& store, uint64_t asked, int rank,
                    int through, const std::vector<Member>& members,
                    const Status& own, Deadline deadline);

// Whether an entry of the store says that a rank has gone or cannot start: then
// the job cannot start.
bool IsFailure(const std::string& key, const std::string& word);

// What the words come to: those of all ranks but 0 that have said or left
// anything, and rank 0's. `in_time`: whether others may still say theirs.
Status StartVerdict(const StoreEntries& words,
                    const std::vector<Member>& members,
                    const Status& of_rank_zero, bool in_time = false);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_START_AGREEMENT_H_
