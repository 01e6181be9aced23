#include "csrc/comm/rendezvous/job_mesh.h"

#include <algorithm>

#include "csrc/comm/rendezvous/start_agreement.h"

namespace keras_ring {
namespace {

// A listener that the table names exists, or its process has gone. So a refusal
// is final, except for transient causes: a full backlog, an evicted handshake.
constexpr Duration kDialAgainFor = std::chrono::seconds(3);
constexpr Duration kDialPause = std::chrono::milliseconds(50);
// A rank that dials again has given up its earlier link. There are two links if
// it dials twice in a row; more than a few are a fault.
constexpr size_t kMaxLinksPerUse = 4;

Deadline DialAgainUntil(Deadline deadline) {
  return Deadline(std::min(deadline.at(), Deadline::After(kDialAgainFor).at()));
}

}  // namespace

void LinkInbox::Put(const Hello& hello, Link link) {
  MutexLock lock(mutex_);
  const Key key(hello.set, hello.kind, hello.rank);
  if (links_.count(key) >= kMaxLinksPerUse) links_.erase(links_.find(key));
  links_.emplace(key, std::move(link));
  came_.NotifyAll();
}

void LinkInbox::Abort(const Status& cause) {
  MutexLock lock(mutex_);
  if (aborted_.ok()) aborted_ = cause;
  came_.NotifyAll();
}

Status LinkInbox::aborted() const {
  MutexLock lock(mutex_);
  return aborted_;
}

size_t LinkInbox::size() const {
  MutexLock lock(mutex_);
  return links_.size();
}

void LinkInbox::DropEarlierLocked(uint32_t set) {
  const LinkKind first = LinkKind::kStore;
  links_.erase(links_.lower_bound(Key(1, first, 0)),
               links_.lower_bound(Key(std::max(set, 1u), first, 0)));
}

std::vector<int> LinkInbox::MissingLocked(LinkUse use,
                                          const std::vector<int>& ranks) {
  std::vector<int> missing;
  for (int rank : ranks) {
    auto [it, end] = links_.equal_range(Key(use.set, use.kind, rank));
    while (it != end && IsDead(it->second.socket())) it = links_.erase(it);
    if (it == end) missing.push_back(rank);
  }
  return missing;
}

Result<Links> LinkInbox::Take(LinkUse use, const std::vector<int>& ranks,
                              Deadline deadline) {
  MutexLock lock(mutex_);
  DropEarlierLocked(use.set);
  came_.WaitUntil(mutex_, deadline.at(), [&]() KR_REQUIRES(mutex_) {
    return !aborted_.ok() || MissingLocked(use, ranks).empty();
  });
  const std::vector<int> missing = MissingLocked(use, ranks);
  if (!missing.empty()) {
    KR_RETURN_IF_ERROR(aborted_);
    return DeadlineExceededError(RankNames(missing) +
                                 " did not connect in time");
  }
  Links taken;
  for (int rank : ranks) {
    auto it = links_.find(Key(use.set, use.kind, rank));
    taken.emplace(rank, std::move(it->second));
    links_.erase(it);
  }
  return taken;
}

JobMesh::JobMesh(int rank, int size, const JobKey& key, uint64_t target,
                 uint16_t port, Tls* tls)
    : rank_(rank),
      size_(size),
      key_(key),
      target_(target),
      port_(port),
      tls_(tls) {}

Result<std::unique_ptr<JobMesh>> JobMesh::Start(int rank, int size,
                                                const JobKey& key,
                                                Socket listener,
                                                bool serve_store,
                                                Counters& counters, Tls* tls) {
  KR_ASSIGN_OR_RETURN(uint16_t port, LocalPort(listener));
  uint64_t target = 0;
  KR_RETURN_IF_ERROR(RandomBytes(&target, sizeof(target)));
  std::unique_ptr<JobMesh> mesh(
      new JobMesh(rank, size, key, target, port, tls));
  JobMesh* self = mesh.get();  // outlives its server and acceptor
  if (serve_store) {
    mesh->store_server_ = std::make_unique<TcpStoreServer>(
        [self](const TcpStoreServer::News& news) {
          if (!news.gone && IsFailure(news.key, news.value)) {
            self->GiveUpStart();
          }
        });
    KR_RETURN_IF_ERROR(mesh->store_server_->Start());
  }
  AcceptorOptions options;
  options.tls = tls;
  mesh->acceptor_ = std::make_unique<Acceptor>(
      std::move(listener), key,
      [self](const Hello& hello) { return self->Admit(hello); },
      [self](const Hello& hello, Link link) {
        self->Connected(hello, std::move(link));
      },
      counters, options);
  KR_RETURN_IF_ERROR(mesh->acceptor_->Start());
  return mesh;
}

Verdict JobMesh::Admit(const Hello& hello) const {
  if (hello.kind == LinkKind::kStore) {
    // A rank with a wrong number is told so by rank 0, in its table.
    if (store_server_ == nullptr) return Verdict::kWrongTarget;
    return store_server_->sealed() ? Verdict::kNotNow : Verdict::kAccepted;
  }
  if (hello.target != target_) return Verdict::kWrongTarget;
  const bool dials_us = hello.rank > rank_ && hello.rank < size_;
  return dials_us ? Verdict::kAccepted : Verdict::kWrongRank;
}

void JobMesh::Connected(const Hello& hello, Link link) {
  if (hello.kind == LinkKind::kStore) {
    store_server_->Serve(std::move(link), StartedKey(hello.rank));
  } else {
    inbox_.Put(hello, std::move(link));
  }
}

Status JobMesh::KeepStore(StoreAccess access, Deadline of_rank_zero) {
  access_ = std::move(access);
  deadline_of_rank_zero_ = of_rank_zero;
  asked_ = AskForVerdict(*access_.store);
  KR_ASSIGN_OR_RETURN(watch_, StartMonitor::Start(access_.store->socket(),
                                                  [this] { GiveUpStart(); }));
  return OkStatus();
}

// This rank will report what rank 0 says about the failure.
void JobMesh::GiveUpStart() {
  inbox_.Abort(UnavailableError("the job could not start"));
}

Result<Link> JobMesh::Dial(LinkUse use, int peer, Deadline deadline) const {
  const Member& member = table_.members[peer];
  const Hello hello = {use.kind, rank_, table_.targets[peer], use.set};
  Deadline again = DialAgainUntil(deadline);
  while (true) {
    KR_RETURN_IF_ERROR(inbox_.aborted());
    Result<Socket> socket =
        keras_ring::Connect(member.address, member.port, deadline);
    Status status = socket.status();
    if (socket.ok()) {
      Result<Link> link =
          OpenLink(std::move(socket).value(), key_, hello, tls_, deadline);
      if (link.ok()) return link;
      status = link.status();
      // Somebody listens: among many unauthenticated peers it may have been our
      // turn only after seconds.
      again = DialAgainUntil(deadline);
    }
    if (status.code() != StatusCode::kUnavailable || again.expired()) {
      return status.WithContext("rank " + std::to_string(peer) + " on " +
                                member.host);
    }
    Pause(kDialPause, again);
  }
}

Status JobMesh::StartBarrier(const Status& own) {
  if (store_server_ != nullptr) {
    return AgreeAsRankZero(*store_server_, members(), own, deadline_);
  }
  watch_.reset();
  // A relay stays: others may have yet to read the answer.
  const std::unique_ptr<TcpStoreClient> store = std::move(access_.store);
  KR_CHECK(store != nullptr);
  return AgreeAsOther(*store, asked_, rank_, access_.route.through, members(),
                      own, deadline_of_rank_zero_);
}

// Dials first: a peer's acceptor answers whatever the peer itself is waiting
// for, so no circle of ranks can wait for each other.
Result<Links> JobMesh::Connect(LinkUse use, const std::vector<int>& peers,
                               Deadline deadline) {
  Links dialled;
  std::vector<int> higher;
  for (int peer : peers) {
    KR_CHECK(peer >= 0 && peer != rank_ &&
             peer < static_cast<int>(table_.members.size()));
    if (peer > rank_) {
      higher.push_back(peer);
      continue;
    }
    KR_ASSIGN_OR_RETURN(Link link, Dial(use, peer, deadline));
    dialled.emplace(peer, std::move(link));
  }
  KR_ASSIGN_OR_RETURN(auto links, inbox_.Take(use, higher, deadline));
  links.merge(dialled);
  return links;
}

}  // namespace keras_ring
