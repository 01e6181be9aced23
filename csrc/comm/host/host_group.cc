#include "csrc/comm/host/host_group.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/cpu_quota.h"
#include "csrc/base/logging.h"
#include "csrc/base/sha256.h"
#include "csrc/comm/net/local_socket.h"

namespace keras_ring {
namespace {

// How the ranks of a host meet. The links prove who is who, but they are TCP
// and cannot carry descriptors; a local socket can.
//
//   leader -> each    the name of a local socket, and a pass for it
//   each -> leader    (there) the pass, its descriptors
//   leader -> each    (there) everybody's descriptors
//   each -> leader    (link) has mapped them, or has not
//   leader -> each    (link) all have, or not
//
// Every step on a link begins with a byte that says whether its sender is well;
// so a failure anywhere ends in the last step as a failure everywhere.
constexpr size_t kPassBytes = 32;
constexpr size_t kDescriptorsPerRank = 4;  // segment, bells, arena

struct Invitation {
  char name[40];
  std::array<char, kPassBytes> pass;
};

Status SendVerdict(const Link& link, const Status& status, Deadline deadline) {
  const char well = status.ok() ? 1 : 0;
  return WriteFull(link, &well, 1, deadline);
}

Status ReceiveVerdict(const Link& link, Deadline deadline) {
  char well = 0;
  KR_RETURN_IF_ERROR(ReadFull(link, &well, 1, deadline));
  if (well == 1) return OkStatus();
  return UnavailableError("another rank of this host cannot share memory");
}

Result<Invitation> NewInvitation() {
  Invitation invitation = {};
  uint64_t random[2];
  KR_RETURN_IF_ERROR(RandomBytes(random, sizeof(random)));
  std::snprintf(invitation.name, sizeof(invitation.name), "keras_ring-%016llx",
                static_cast<unsigned long long>(random[0]));
  KR_RETURN_IF_ERROR(RandomBytes(invitation.pass.data(), kPassBytes));
  return invitation;
}

std::vector<int> DescriptorsOf(const HostGroup::Member& member) {
  // Without an arena, something in its place.
  return {member.segment->descriptor().fd(), member.bell->fd(),
          member.data_bell->fd(),
          member.arena ? member.arena->descriptor().fd() : member.bell->fd()};
}

static_assert(sizeof(HostFacts) <= HostFacts::kBytes);

HostFacts& FactsOf(const HostGroup::Member& member) {
  return *reinterpret_cast<HostFacts*>(member.segment->data());
}

// Without a peer's arena tensors are copied, which all ranks must know of: see
// DropArenas.
Status MapArena(Socket descriptor, HostGroup::Member& member,
                HostFacts& own_facts) {
  const uint64_t bytes = FactsOf(member).arena_bytes;
  if (bytes == 0 || own_facts.maps_no_arenas != 0) return OkStatus();
  Result<SharedMemory> arena = SharedMemory::Map(std::move(descriptor), bytes,
                                                 SharedMemory::Access::kRead);
  if (arena.status().code() == StatusCode::kResourceExhausted) {
    KR_LOG(kWarning) << "the tensors of rank " << member.rank
                     << " cannot be read where they are ("
                     << arena.status().message()
                     << "); the ranks of this host copy theirs instead";
    own_facts.maps_no_arenas = 1;
    return OkStatus();
  }
  KR_RETURN_IF_ERROR(arena.status());
  member.arena = std::make_shared<SharedMemory>(std::move(arena).value());
  return OkStatus();
}

// Called once all have mapped what they can: ranks must agree on which tensors
// they read from each other.
void DropArenas(std::vector<HostGroup::Member>& members) {
  for (const HostGroup::Member& member : members) {
    if (FactsOf(member).maps_no_arenas == 0) continue;
    for (HostGroup::Member& each : members) each.arena = nullptr;
    return;
  }
}

Result<std::vector<HostGroup::Member>> MembersOf(
    const std::vector<int>& ranks, const HostGroup::Member& own,
    std::vector<Socket> descriptors, const HostGroupLayout& layout) {
  std::vector<HostGroup::Member> members;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == own.rank) {
      members.push_back(own);
      continue;
    }
    Socket* of_rank = &descriptors[i * kDescriptorsPerRank];
    KR_ASSIGN_OR_RETURN(
        SharedMemory segment,
        SharedMemory::Map(std::move(of_rank[0]), layout.total()));
    HostGroup::Member member;
    member.rank = ranks[i];
    member.segment = std::make_shared<SharedMemory>(std::move(segment));
    member.bell = std::make_shared<Socket>(std::move(of_rank[1]));
    member.data_bell = std::make_shared<Socket>(std::move(of_rank[2]));
    KR_RETURN_IF_ERROR(MapArena(std::move(of_rank[3]), member, FactsOf(own)));
    members.push_back(std::move(member));
  }
  return members;
}

// A guest writes all that it has to say before it waits. So one that has not
// soon is none of ours, or could not.
Deadline LimitOfGuest(Deadline deadline) {
  return Deadline(
      std::min(deadline.at(), Deadline::After(std::chrono::seconds(1)).at()));
}

// The connection of the next guest that shows the pass, and its local rank.
Result<std::pair<int, Socket>> Receive(const Socket& listener,
                                       const Invitation& invitation,
                                       Deadline deadline) {
  while (true) {
    KR_ASSIGN_OR_RETURN(Socket guest, AcceptLocal(listener, deadline));
    struct {
      std::array<char, kPassBytes> pass;
      int32_t local_rank;
    } shown = {};
    if (ReadFull(guest, &shown, sizeof(shown), LimitOfGuest(deadline)).ok() &&
        ConstantTimeEqual({shown.pass.data(), kPassBytes},
                          {invitation.pass.data(), kPassBytes})) {
      return std::pair<int, Socket>(shown.local_rank, std::move(guest));
    }
  }
}

class Meeting {
 public:
  Meeting(const std::vector<int>& ranks, const HostGroupLayout& layout,
          const Links& links, Deadline deadline)
      : ranks_(ranks), layout_(layout), links_(links), deadline_(deadline) {}

  Result<std::vector<HostGroup::Member>> Lead(Result<HostGroup::Member> own) {
    Result<Invitation> invitation = NewInvitation();
    Socket listener;
    Status status = own.ok() ? invitation.status() : own.status();
    if (status.ok()) {
      Result<Socket> listening = ListenLocal(invitation->name);
      status = listening.status();
      if (listening.ok()) listener = std::move(listening).value();
    }
    // Invite.
    for (const auto& [rank, link] : links_) {
      KR_RETURN_IF_ERROR(SendVerdict(link, status, deadline_));
      if (status.ok()) {
        KR_RETURN_IF_ERROR(
            WriteFull(link, &*invitation, sizeof(Invitation), deadline_));
      }
    }
    if (!status.ok()) return status;
    // Receive the guests, in the order in which they come.
    std::map<int, Socket> guests;
    std::vector<Socket> received(ranks_.size() * kDescriptorsPerRank);
    std::vector<int> descriptors(received.size());
    for (const auto& [rank, link] : links_) {
      // Not there: the guest could not come, and says so here.
      Status came = ReceiveVerdict(link, deadline_);
      if (status.ok()) status = came;
      if (came.ok()) {
        Status seated = Seat(listener, *invitation, guests, received);
        if (status.ok()) status = seated;
      }
    }
    Place(DescriptorsOf(*own), 0, descriptors);
    for (const auto& [local_rank, guest] : guests) {
      for (size_t d = 0; d < kDescriptorsPerRank; ++d) {
        const size_t at = local_rank * kDescriptorsPerRank + d;
        descriptors[at] = received[at].fd();
      }
    }
    // Give everybody everything.
    for (const auto& [rank, link] : links_) {
      KR_RETURN_IF_ERROR(SendVerdict(link, status, deadline_));
    }
    if (!status.ok()) return status;
    for (const auto& [local_rank, guest] : guests) {
      Status sent = SendDescriptors(guest, descriptors, deadline_);
      if (status.ok()) status = sent;
    }
    Result<std::vector<HostGroup::Member>> members =
        MembersOf(ranks_, *own, std::move(received), layout_);
    if (status.ok()) status = members.status();
    for (const auto& [rank, link] : links_) {
      Status mapped = ReceiveVerdict(link, deadline_);
      if (status.ok()) status = mapped;
    }
    for (const auto& [rank, link] : links_) {
      KR_RETURN_IF_ERROR(SendVerdict(link, status, deadline_));
    }
    if (!status.ok()) return status;
    DropArenas(*members);
    return members;
  }

  Result<std::vector<HostGroup::Member>> Attend(Result<HostGroup::Member> own,
                                                int32_t local_rank) {
    const Link& link = links_.begin()->second;
    KR_RETURN_IF_ERROR(ReceiveVerdict(link, deadline_));
    Invitation invitation;
    KR_RETURN_IF_ERROR(
        ReadFull(link, &invitation, sizeof(invitation), deadline_));
    invitation.name[sizeof(invitation.name) - 1] = '\0';
    Socket leader;
    Status status = own.status();
    if (status.ok()) status = Enter(invitation, *own, local_rank, &leader);
    KR_RETURN_IF_ERROR(SendVerdict(link, status, deadline_));
    Status others = ReceiveVerdict(link, deadline_);
    if (!status.ok()) return status;
    KR_RETURN_IF_ERROR(others);
    Result<std::vector<HostGroup::Member>> members =
        TakeEverything(leader, *own);
    KR_RETURN_IF_ERROR(SendVerdict(link, members.status(), deadline_));
    others = ReceiveVerdict(link, deadline_);
    if (members.ok() && !others.ok()) return others;
    if (members.ok()) DropArenas(*members);
    return members;
  }

 private:
  static void Place(const std::vector<int>& fds, int local_rank,
                    std::vector<int>& all) {
    std::copy(fds.begin(), fds.end(),
              all.begin() + local_rank * kDescriptorsPerRank);
  }

  Status Seat(const Socket& listener, const Invitation& invitation,
              std::map<int, Socket>& guests, std::vector<Socket>& received) {
    KR_ASSIGN_OR_RETURN(auto guest, Receive(listener, invitation, deadline_));
    const int local_rank = guest.first;
    if (local_rank < 1 || local_rank >= static_cast<int>(ranks_.size())) {
      return InternalError("a rank of this host does not know its local rank");
    }
    KR_ASSIGN_OR_RETURN(std::vector<Socket> own,
                        ReceiveDescriptors(guest.second, kDescriptorsPerRank,
                                           LimitOfGuest(deadline_)));
    std::move(own.begin(), own.end(),
              received.begin() + local_rank * kDescriptorsPerRank);
    guests[local_rank] = std::move(guest.second);
    return OkStatus();
  }

  Status Enter(const Invitation& invitation, const HostGroup::Member& own,
               int32_t local_rank, Socket* leader) {
    KR_ASSIGN_OR_RETURN(*leader, ConnectLocal(invitation.name, deadline_));
    KR_RETURN_IF_ERROR(
        WriteFull(*leader, invitation.pass.data(), kPassBytes, deadline_));
    KR_RETURN_IF_ERROR(
        WriteFull(*leader, &local_rank, sizeof(local_rank), deadline_));
    return SendDescriptors(*leader, DescriptorsOf(own), deadline_);
  }

  Result<std::vector<HostGroup::Member>> TakeEverything(
      const Socket& leader, const HostGroup::Member& own) {
    KR_ASSIGN_OR_RETURN(
        std::vector<Socket> descriptors,
        ReceiveDescriptors(leader, ranks_.size() * kDescriptorsPerRank,
                           deadline_));
    return MembersOf(ranks_, own, std::move(descriptors), layout_);
  }

  const std::vector<int>& ranks_;
  const HostGroupLayout& layout_;
  const Links& links_;
  const Deadline deadline_;
};

}  // namespace

Result<HostGroup::Member> NewHostGroupMember(
    int rank, const HostGroupLayout& layout,
    std::shared_ptr<const SharedMemory> arena) {
  KR_ASSIGN_OR_RETURN(SharedMemory segment,
                      SharedMemory::Create("keras_ring", layout.total(),
                                           SharedMemory::Refused::kFile));
  KR_ASSIGN_OR_RETURN(Socket bell, NewEventFd());
  KR_ASSIGN_OR_RETURN(Socket data_bell, NewEventFd());
  auto* facts = new (segment.data()) HostFacts();
  if (const std::optional<CpuQuota> quota = ReadCpuQuota()) {
    facts->quota_cores = quota->cores;
    facts->quota_group = quota->group;
  }
  if (sched_getaffinity(0, sizeof(facts->cores), &facts->cores) != 0) {
    // More cores than the type can hold, so enough of them.
    std::memset(&facts->cores, 0xff, sizeof(facts->cores));
  }
  facts->arena_bytes = arena ? arena->bytes() : 0;
  HostGroup::Member member;
  member.rank = rank;
  member.segment = std::make_shared<SharedMemory>(std::move(segment));
  member.bell = std::make_shared<Socket>(std::move(bell));
  member.data_bell = std::make_shared<Socket>(std::move(data_bell));
  member.arena = std::move(arena);
  return member;
}

Result<std::unique_ptr<HostGroup>> HostGroup::Form(
    const std::vector<int>& ranks, int own_rank, const HostGroupLayout& layout,
    std::shared_ptr<const SharedMemory> arena, const Links& links,
    Deadline deadline, const RankSet& set) {
  const int local_rank = static_cast<int>(
      std::find(ranks.begin(), ranks.end(), own_rank) - ranks.begin());
  KR_CHECK(local_rank < static_cast<int>(ranks.size()));
  Result<Member> own = NewHostGroupMember(own_rank, layout, std::move(arena));
  Meeting meeting(ranks, layout, links, deadline);
  Result<std::vector<Member>> members =
      local_rank == 0 ? meeting.Lead(std::move(own))
                      : meeting.Attend(std::move(own), local_rank);
  if (!members.ok()) {
    return members.status().WithContext("sharing memory on this host");
  }
  return std::make_unique<HostGroup>(std::move(members).value(), local_rank,
                                     layout, set);
}

Result<std::unique_ptr<HostGroup>> HostGroup::FormWithin(
    const HostGroup& job, const RankSet& set, const std::vector<int>& ranks,
    int own_rank, const HostGroupLayout& layout, const Links& links,
    Deadline deadline) {
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<HostGroup> group,
      Form(ranks, own_rank, layout, nullptr, links, deadline, set));
  std::vector<Member> members = group->members_;
  for (Member& member : members) {
    const int local_rank = job.LocalRankOf(set.Global(member.rank));
    KR_CHECK(local_rank >= 0);
    member.arena = job.members_[local_rank].arena;
  }
  return std::make_unique<HostGroup>(std::move(members), group->local_rank(),
                                     layout, set);
}

int HostGroup::NumUsableCores() const {
  cpu_set_t all;
  CPU_ZERO(&all);
  // By group: the ranks of a group share one quota.
  std::map<uint64_t, double> quotas;
  bool bounded = true;
  for (const Member& member : members_) {
    const HostFacts& facts = FactsOf(member);
    CPU_OR(&all, &all, &facts.cores);
    bounded = bounded && facts.quota_cores > 0.0;
    quotas[facts.quota_group] = facts.quota_cores;
  }
  const int cores = CPU_COUNT(&all);
  if (!bounded) return cores;
  double given = 0.0;
  for (const auto& [group, quota] : quotas) given += quota;
  return given < cores ? static_cast<int>(given) : cores;
}

LivenessFutex& HostGroup::liveness(int local_rank) const {
  return FactsOf(members_[local_rank]).liveness;
}

std::vector<int> HostGroup::global_ranks() const {
  std::vector<int> ranks;
  for (int i = 0; i < size(); ++i) ranks.push_back(global_rank(i));
  return ranks;
}

int HostGroup::LocalRankOf(int rank) const {
  for (int i = 0; i < size(); ++i) {
    if (members_[i].rank == rank) return i;
  }
  return -1;
}

}  // namespace keras_ring
