#include "csrc/comm/rendezvous/host_relay.h"

#include <errno.h>
#include <poll.h>

#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/base/wire.h"
#include "csrc/comm/rendezvous/start_agreement.h"

namespace keras_ring {
namespace {

// The relay's own, which rank 0 never sees.
constexpr char kRouteKey[] = "relay/route";
// For rank 0's answer to arrive, also at a rank that has yet to ask for it.
constexpr Duration kLinger = std::chrono::milliseconds(300);
constexpr size_t kMaxAddressBytes = 256;
constexpr size_t kMaxMessageBytes = 1 << 16;

std::string EncodeRoute(const Status& status, const StoreRoute& route) {
  WireWriter writer;
  writer.Byte(static_cast<uint8_t>(status.code()));
  writer.Text(status.message().substr(0, kMaxMessageBytes));
  writer.Varint(route.through);
  writer.Text(route.local);
  writer.Text(route.peer);
  return writer.Take();
}

Result<StoreRoute> DecodeRoute(const std::string& bytes) {
  WireReader reader(bytes);
  const StatusCode code = StatusCodeOf(reader.Byte());
  const std::string message(reader.Text(kMaxMessageBytes));
  StoreRoute route;
  route.through = static_cast<int>(reader.Varint());
  route.local = std::string(reader.Text(kMaxAddressBytes));
  route.peer = std::string(reader.Text(kMaxAddressBytes));
  if (!reader.Finished()) {
    return InternalError("a malformed route from the relay of this host");
  }
  if (code != StatusCode::kOk) return Status(code, message);
  return route;
}

}  // namespace

HostRelay::HostRelay()
    : server_([this](const TcpStoreServer::News& news) {
        {
          MutexLock lock(mutex_);
          news_.push_back(news);
        }
        Signal(wake_);
      }) {}

Result<std::unique_ptr<HostRelay>> HostRelay::Start(Socket listener,
                                                    const JobKey& key,
                                                    Counters& counters) {
  std::unique_ptr<HostRelay> relay(new HostRelay());
  KR_ASSIGN_OR_RETURN(relay->wake_, NewEventFd());
  KR_RETURN_IF_ERROR(relay->server_.Start());
  HostRelay* self = relay.get();  // outlives its acceptor
  relay->acceptor_ = std::make_unique<Acceptor>(
      std::move(listener), key,
      [self](const Hello& hello) {
        if (hello.kind != LinkKind::kStore) return Verdict::kWrongTarget;
        return self->server_.sealed() ? Verdict::kNotNow : Verdict::kAccepted;
      },
      [self](const Hello& hello, Link link) {
        self->server_.Serve(std::move(link), StartedKey(hello.rank));
      },
      counters);
  KR_RETURN_IF_ERROR(relay->acceptor_->Start());
  return relay;
}

HostRelay::~HostRelay() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Signal(wake_);
  if (thread_.joinable()) thread_.join();
  // The name is free before the last of the answers has arrived.
  if (acceptor_ != nullptr) acceptor_->Stop();
  server_.Stop(has_answer() ? kLinger : Duration::zero());
}

void HostRelay::PutRoute(const Status& status, const StoreRoute& route) {
  (void)store().Set(kRouteKey, EncodeRoute(status, route),
                    Deadline::After(Duration::zero()));
}

Status HostRelay::Open(Link link, const StoreRoute& route) {
  rank_zero_.emplace(std::move(link), kMaxStoreReplyBytes);
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-relay", [this] {
                        SetThreadName("kr-relay");
                        Run();
                      }));
  PutRoute(OkStatus(), route);
  return OkStatus();
}

void HostRelay::Refuse(const Status& why) {
  concluded_ = true;
  PutRoute(why, StoreRoute());
}

void HostRelay::Run() {
  Ask(kTableKey);
  Ask(kVerdictKey);
  while (!concluded_ && Wait()) {
    std::vector<TcpStoreServer::News> news;
    {
      MutexLock lock(mutex_);
      news.swap(news_);
    }
    for (const TcpStoreServer::News& one : news) PassOn(one);
    const Status status = ReadAnswers();
    if (status.ok()) continue;
    OnLost(status);
    break;
  }
  rank_zero_.reset();
  // Any rank that comes now belongs to the next job.
  acceptor_->Stop();
  if (!has_answer()) server_.Stop(Duration::zero());
}

bool HostRelay::Wait() {
  pollfd entries[] = {{wake_.fd(), POLLIN, 0},
                      {rank_zero_->socket().fd(), POLLIN, 0}};
  if (rank_zero_->wants_write()) entries[1].events |= POLLOUT;
  while (poll(entries, 2, -1) < 0) {
    if (errno != EINTR) return false;
  }
  if (entries[0].revents != 0) ClearSignal(wake_);
  if ((entries[1].revents & POLLOUT) != 0) rank_zero_->Flush();
  MutexLock lock(mutex_);
  return !stopping_;
}

void HostRelay::Ask(const std::string& key) {
  StoreRequest request;
  request.kind = StoreRequest::Kind::kList;
  request.id = next_id_++;
  request.key = key;
  request.at_least = 1;
  asked_.emplace(request.id, key);
  rank_zero_->Send(Encode(request));
}

void HostRelay::PassOn(const TcpStoreServer::News& news) {
  StoreRequest request;
  request.kind =
      news.gone ? StoreRequest::Kind::kUnset : StoreRequest::Kind::kSet;
  request.id = next_id_++;  // nobody waits for the reply
  request.key = news.key;
  request.value = news.value;
  rank_zero_->Send(Encode(request));
  if (news.gone || !HasPrefix(news.key, kLatePrefix)) return;
  Ask(kMissingPrefix + news.key.substr(sizeof(kLatePrefix) - 1));
}

Status HostRelay::ReadAnswers() {
  KR_ASSIGN_OR_RETURN(size_t got, rank_zero_->Read());
  while (got > 0) {
    std::string_view frame;
    KR_ASSIGN_OR_RETURN(const bool whole, rank_zero_->Next(&frame));
    if (!whole) break;
    StoreReply reply;
    if (!Decode(frame, &reply)) return InternalError("a malformed reply");
    OnAnswer(reply);
  }
  return OkStatus();
}

void HostRelay::OnAnswer(const StoreReply& reply) {
  const auto asked = asked_.find(reply.id);
  if (asked == asked_.end()) return;
  const std::string key = asked->second;
  asked_.erase(asked);
  if (key == kTableKey) {
    const auto entry = reply.entries.find(key);
    const bool whole =
        entry != reply.entries.end() && Decode(entry->second, &table_);
    // There is no job. Else: before the table is out, as rank 0 does it.
    concluded_ |= !whole || !table_.status.ok();
    if (!concluded_) server_.Seal();
  }
  concluded_ |= key == kVerdictKey;
  for (const auto& [name, value] : reply.entries) {
    (void)store().Set(name, value, Deadline::After(Duration::zero()));
  }
}

// Before the table, ranks try again: the store may have been that of an earlier
// job. After it, rank 0 is lost.
void HostRelay::OnLost(const Status& why) {
  if (table_.members.empty()) return;
  concluded_ = true;
  (void)store().Set(
      kVerdictKey, EncodeVerdict(LostAtStart(0, table_.members, why.message())),
      Deadline::After(Duration::zero()));
}

Result<StoreRoute> HostRelay::RouteOf(TcpStoreClient& store,
                                      Deadline deadline) {
  KR_ASSIGN_OR_RETURN(const StoreEntries entries,
                      store.List(kRouteKey, 1, deadline));
  return DecodeRoute(entries.begin()->second);
}

}  // namespace keras_ring
