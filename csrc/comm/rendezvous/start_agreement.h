// The end of a job's start: it succeeds on all ranks or on none.
//
// If a rank is lost while links are made, only the ranks that wait for it
// notice; these give up, and the ranks that wait for them see no more than
// that. So each rank reports its outcome to rank 0 through the store, and rank
// 0 tells all of them which rank is to blame. It does so as soon as it knows,
// and each rank has asked for it before it waits for links.
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

// The key of a rank's report. An empty value: the rank left without a report.
std::string StartedKey(int rank);
// The key of rank 0's verdict, and its encoding.
inline constexpr char kVerdictKey[] = "verdict";
std::string EncodeVerdict(const Status& verdict);
// The verdict that this rank is lost.
Status LostAtStart(int rank, const std::vector<Member>& members,
                   const std::string& why);

// For rank 0. `own`: the outcome of the start here. `deadline`: when the other
// ranks, too, have given up at the latest.
Status AgreeAsRankZero(TcpStoreServer& server,
                       const std::vector<Member>& members, const Status& own,
                       Deadline deadline);
// For any other rank, before it waits for links. If the store's socket becomes
// readable after this, the start has failed, or rank 0 has gone.
uint64_t AskForVerdict(TcpStoreClient& store);
// The second step. `asked`: the result of AskForVerdict. `through`: the rank
// whose store it is, rank 0 or the relay of this host.
Status AgreeAsOther(TcpStoreClient& store, uint64_t asked, int rank,
                    int through, const std::vector<Member>& members,
                    const Status& own, Deadline deadline);

// Returns whether an entry of the store says that a rank has gone or cannot
// start: then the job cannot start.
bool IsFailure(const std::string& key, const std::string& word);

// Combines the reports: those of all ranks but 0 that have left any, and rank
// 0's. `in_time`: whether other ranks may still report.
Status StartVerdict(const StoreEntries& words,
                    const std::vector<Member>& members,
                    const Status& of_rank_zero, bool in_time = false);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_START_AGREEMENT_H_
