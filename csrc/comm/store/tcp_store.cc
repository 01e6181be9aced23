#include "csrc/comm/store/tcp_store.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/base/wire.h"
#include "csrc/comm/net/addresses.h"
#include "csrc/comm/store/store_message.h"

namespace keras_ring {
namespace {

// A rank asks for two things and waits for one, and may do so for all of its
// host; far more is a fault.
constexpr size_t kMaxWaitsPerClient = 4096;

constexpr Duration kFirstPause = std::chrono::milliseconds(5);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);
// By which the longest pause grows with the rank: thousands of ranks that come
// before rank 0 does shall not keep its host busy.
constexpr Duration kPausePerRank = std::chrono::microseconds(250);

// How long an answer takes that is at hand.
constexpr Duration kAnswerGrace = std::chrono::milliseconds(300);

// For one of several addresses, where another has turned out to be wrong.
constexpr Duration kPatience = std::chrono::seconds(2);

// Pauses between tries: they grow, and differ between ranks.
class Pauses {
 public:
  explicit Pauses(int rank)
      : longest_(kLongestPause + rank * kPausePerRank), random_(rank) {}
  Duration Next() {
    std::uniform_real_distribution<double> factor(0.5, 1.5);
    const Duration pause = next_;
    next_ = std::min(2 * next_, longest_);
    return std::chrono::duration_cast<Duration>(pause * factor(random_));
  }

 private:
  const Duration longest_;
  Duration next_ = kFirstPause;
  std::minstd_rand random_;
};

}  // namespace

TcpStoreServer::Client::Client(int number, Link link, std::string last_word)
    : number(number),
      last_word(std::move(last_word)),
      connection(std::move(link), kMaxStoreRequestBytes) {}

TcpStoreServer::TcpStoreServer(Heard heard)
    : heard_(std::move(heard)), entries_([this] { Signal(wake_); }) {}

TcpStoreServer::~TcpStoreServer() { Stop(); }

Status TcpStoreServer::Start() {
  KR_ASSIGN_OR_RETURN(wake_, NewEventFd());
  poll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN;
  if (!poll_.valid() ||
      epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, wake_.fd(), &event) != 0) {
    return ResourceExhaustedError("epoll: " + ErrnoText(errno));
  }
  auto body = [this] {
    SetThreadName("kr-store");
    try {
      Run();
    } catch (...) {
      // Out of memory, in effect. The ranks that wait see the connection end.
      KR_LOG(kError) << "the store has stopped after an exception";
    }
    clients_.clear();
  };
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-store", body));
  return OkStatus();
}

void TcpStoreServer::Stop(Duration linger) {
  if (!thread_.joinable()) return;
  linger_ = linger.count();
  stopping_ = true;
  Signal(wake_);
  thread_.join();
  MutexLock lock(mutex_);
  arrived_.clear();
  num_clients_ = 0;
}

void TcpStoreServer::Serve(Link link, std::string last_word) {
  {
    MutexLock lock(mutex_);
    if (ended_) return;
    arrived_.emplace_back(std::move(link), std::move(last_word));
    ++num_clients_;
  }
  Signal(wake_);
}

bool TcpStoreServer::WaitUntilAlone(Deadline deadline) {
  MutexLock lock(mutex_);
  return alone_.WaitUntil(mutex_, deadline.at(), [this]() KR_REQUIRES(mutex_) {
    return num_clients_ == 0;
  });
}

void TcpStoreServer::Run() {
  Deadline last(TimePoint::max());
  bool ending = false;
  while (true) {
    if (stopping_ && !ending) {
      ending = true;
      last = Deadline::After(Duration(linger_));
    }
    TakeNewClients();
    AnswerWaits();
    RemoveGoneClients();
    if ((ending || sealed_) && EndIfAlone()) return;
    if (ending && last.expired()) return;

    auto events = WaitForEvents(ending ? last.PollTimeoutMs() : -1);
    if (!events.ok()) {
      KR_LOG(kError) << "the store has stopped: " << events.status().message();
      return;
    }
    for (const auto& [client, event] : *events) {
      if (client == nullptr) {
        ClearSignal(wake_);
        continue;
      }
      if ((event & EPOLLOUT) != 0) {
        client->connection.Flush();
        WatchForRoom(*client);
      }
      if ((event & ~EPOLLOUT) != 0) ReadFrom(*client);
    }
  }
}

Result<std::vector<std::pair<TcpStoreServer::Client*, uint32_t>>>
TcpStoreServer::WaitForEvents(int milliseconds) {
  // Room for all: one that has left must be read before it comes again.
  std::vector<epoll_event> events(clients_.size() + 1);
  int count = epoll_wait(poll_.fd(), events.data(),
                         static_cast<int>(events.size()), milliseconds);
  if (count < 0 && errno != EINTR) {
    return InternalError("epoll_wait: " + ErrnoText(errno));
  }
  std::vector<std::pair<Client*, uint32_t>> happened;
  for (int i = 0; i < count; ++i) {
    const uint32_t what = events[i].events;  // it is packed
    happened.emplace_back(static_cast<Client*>(events[i].data.ptr), what);
  }
  std::sort(happened.begin(), happened.end(), [](const auto& a, const auto& b) {
    auto number = [](const Client* client) {
      return client == nullptr ? -1 : client->number;
    };
    return number(a.first) < number(b.first);
  });
  return happened;
}

void TcpStoreServer::TakeNewClients() {
  std::vector<std::pair<Link, std::string>> arrived;
  {
    MutexLock lock(mutex_);
    arrived.swap(arrived_);
  }
  for (auto& [link, last_word] : arrived) {
    clients_.emplace_back(next_number_++, std::move(link),
                          std::move(last_word));
    Client& client = clients_.back();
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.ptr = &client;
    if (epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, client.connection.socket().fd(),
                  &event) != 0) {
      KR_LOG(kError) << "the store drops a client: epoll_ctl: "
                     << ErrnoText(errno);
      Drop(client);
    }
  }
}

void TcpStoreServer::Send(Client& client, const std::string& frame) {
  client.connection.Send(frame);
  WatchForRoom(client);
}

void TcpStoreServer::WatchForRoom(Client& client) {
  const bool awaits_room = client.connection.wants_write();
  if (awaits_room == client.awaits_room) return;
  client.awaits_room = awaits_room;
  epoll_event event = {};
  event.events = EPOLLIN;
  if (awaits_room) event.events |= EPOLLOUT;
  event.data.ptr = &client;
  // Fails for a descriptor that has just been dropped only.
  (void)epoll_ctl(poll_.fd(), EPOLL_CTL_MOD, client.connection.socket().fd(),
                  &event);
}

void TcpStoreServer::ReadFrom(Client& client) {
  if (client.gone) return;
  Result<size_t> got = client.connection.Read();
  if (!got.ok()) {
    Drop(client);  // the ordinary end
    return;
  }
  while (true) {
    std::string_view request;
    Result<bool> whole = client.connection.Next(&request);
    if (whole.ok() && !*whole) return;
    Status status = whole.ok() ? Handle(client, request) : whole.status();
    if (!status.ok()) {
      KR_LOG(kWarning) << "the store drops a client: " << status.message();
      Drop(client);
      return;
    }
  }
}

Status TcpStoreServer::Handle(Client& client, std::string_view bytes) {
  StoreRequest request;
  if (!Decode(bytes, &request)) {
    return InternalError("a malformed request");
  }
  if (request.kind == StoreRequest::Kind::kSet) {
    entries_.SetOwned(request.key, request.value, client.number);
    Tell({request.key, request.value});
    Send(client, Encode(StoreReply{request.id, {}}));
    return OkStatus();
  }
  if (request.kind == StoreRequest::Kind::kUnset) {
    if (sealed_) {
      SayLastWord(request.value);
    } else if (entries_.Remove(request.key, client.number)) {
      Tell({request.key, request.value, /*gone=*/true});
    }
    Send(client, Encode(StoreReply{request.id, {}}));
    return OkStatus();
  }
  if (client.num_waits == kMaxWaitsPerClient) {
    return InternalError("too many requests at once");
  }
  ++client.num_waits;
  waits_[{request.key, static_cast<size_t>(request.at_least)}].push_back(
      {&client, request.id});
  return OkStatus();
}

// Many clients wait for few distinct things.
void TcpStoreServer::AnswerWaits() {
  for (auto it = waits_.begin(); it != waits_.end();) {
    const auto& [prefix, at_least] = it->first;
    const std::optional<StoreEntries> found =
        entries_.TryList(prefix, at_least);
    if (!found) {
      ++it;
      continue;
    }
    const std::string entries = EncodeEntries(*found);
    for (const Asked& asked : it->second) {
      if (asked.client->gone) continue;
      --asked.client->num_waits;
      Send(*asked.client, EncodeReply(asked.id, entries));
    }
    it = waits_.erase(it);
  }
}

// The keys must be gone before a later client is read from, or a rank that
// left and came again would be there twice. Clients are read from in the order
// in which they came.
void TcpStoreServer::Drop(Client& client) {
  client.gone = true;
  ++num_gone_;
  // To close it is not enough where a fork of this process has it, too.
  (void)epoll_ctl(poll_.fd(), EPOLL_CTL_DEL, client.connection.socket().fd(),
                  nullptr);
  // Once the job is complete its table must outlive them.
  if (sealed_) return SayLastWord(client.last_word);
  for (const std::string& key : entries_.RemoveOwner(client.number)) {
    Tell({key, client.last_word, /*gone=*/true});
  }
}

void TcpStoreServer::SayLastWord(const std::string& key) {
  if (key.empty() || !entries_.SetIfMissing(key, "")) return;
  Tell({key, ""});
}

void TcpStoreServer::RemoveGoneClients() {
  if (num_gone_ == 0) return;
  for (auto it = waits_.begin(); it != waits_.end();) {
    std::vector<Asked>& asked = it->second;
    asked.erase(
        std::remove_if(asked.begin(), asked.end(),
                       [](const Asked& one) { return one.client->gone; }),
        asked.end());
    it = asked.empty() ? waits_.erase(it) : std::next(it);
  }
  clients_.remove_if([](const Client& client) { return client.gone; });
  MutexLock lock(mutex_);
  num_clients_ -= std::exchange(num_gone_, 0);
  alone_.NotifyAll();
}

bool TcpStoreServer::EndIfAlone() {
  MutexLock lock(mutex_);
  ended_ = num_clients_ == 0;
  return ended_;
}

Result<Link> OpenStoreLink(const std::string& host, uint16_t port,
                           const JobKey& key, int rank, Deadline deadline,
                           Tls* tls) {
  auto open = [&](const std::string& at, Deadline until) -> Result<Link> {
    KR_ASSIGN_OR_RETURN(Socket socket, keras_ring::Connect(at, port, until));
    return OpenLink(std::move(socket), key, {LinkKind::kStore, rank, 0}, tls,
                    until);
  };
  const std::vector<std::string> hosts = SplitHosts(host);
  auto open_any = [&]() -> Result<Link> {
    Result<Link> link = open(host, deadline);
    if (link.status().code() != StatusCode::kUnauthenticated ||
        hosts.size() == 1) {
      return link;
    }
    // Somebody else listens at that one: an address that each host has, say.
    bool may_come = false;
    for (const std::string& one : hosts) {
      const Deadline soon = Deadline::After(kPatience);
      Result<Link> other =
          open(one, Deadline(std::min(deadline.at(), soon.at())));
      if (other.ok()) return other;
      may_come |= other.status().code() != StatusCode::kUnauthenticated;
    }
    return may_come ? UnavailableError(link.status().message()) : link.status();
  };
  Pauses pauses(rank);
  Status last;  // why it did not work, when the deadline comes
  while (true) {
    Result<Link> link = open_any();
    if (link.ok()) return link;
    const Status status = link.status();
    if (status.code() == StatusCode::kDeadlineExceeded && !last.ok()) {
      return last;
    }
    if (status.code() != StatusCode::kUnavailable) return status;
    if (deadline.expired()) return status;
    last = status;
    Pause(pauses.Next(), deadline);
  }
}

TcpStoreClient::TcpStoreClient(Link link)
    : connection_(std::move(link), kMaxStoreReplyBytes) {}

Result<std::unique_ptr<TcpStoreClient>> TcpStoreClient::Connect(
    const std::string& host, uint16_t port, const JobKey& key, int rank,
    Deadline deadline, Tls* tls) {
  KR_ASSIGN_OR_RETURN(Link link,
                      OpenStoreLink(host, port, key, rank, deadline, tls));
  return std::make_unique<TcpStoreClient>(std::move(link));
}

Result<std::string> TcpStoreClient::Await(uint64_t id, Deadline deadline) {
  while (true) {
    std::string_view reply;
    KR_ASSIGN_OR_RETURN(bool whole, connection_.Next(&reply));
    if (whole) {
      WireReader reader(reply);
      const uint64_t answered = reader.Varint();
      if (answered == id) return std::string(reply);
      auto begun = begun_.find(answered);
      if (begun != begun_.end()) begun->second = std::string(reply);
      continue;
    }
    short events = POLLIN;
    if (connection_.wants_write()) events |= POLLOUT;
    KR_RETURN_IF_ERROR(WaitFor(connection_.socket(), events, deadline));
    connection_.Flush();
    KR_ASSIGN_OR_RETURN(size_t got, connection_.Read());
    (void)got;
  }
}

Status TcpStoreClient::Set(const std::string& key, const std::string& value,
                           Deadline deadline) {
  if (key.size() > kMaxStoreKeyBytes || value.size() > kMaxStoreValueBytes) {
    return InvalidArgumentError("key or value too long for the store");
  }
  StoreRequest request;
  request.kind = StoreRequest::Kind::kSet;
  request.id = next_id_++;
  request.key = key;
  request.value = value;
  connection_.Send(Encode(request));
  return Await(request.id, deadline).status();
}

Result<StoreEntries> TcpStoreClient::List(const std::string& prefix,
                                          size_t at_least, Deadline deadline) {
  const uint64_t id = BeginList(prefix, at_least);
  Result<StoreEntries> entries = EndList(id, deadline);
  begun_.erase(id);
  return entries;
}

bool TcpStoreClient::Answers() {
  // None of its keys begins so, and it need not wait for one.
  return List("?", 0, Deadline::After(kAnswerGrace)).ok();
}

uint64_t TcpStoreClient::BeginList(const std::string& prefix, size_t at_least) {
  StoreRequest request;
  request.kind = StoreRequest::Kind::kList;
  request.id = next_id_++;
  request.key = prefix;
  request.at_least = at_least;
  begun_.emplace(request.id, std::nullopt);
  connection_.Send(Encode(request));
  return request.id;
}

Result<StoreEntries> TcpStoreClient::EndList(uint64_t id, Deadline deadline) {
  auto begun = begun_.find(id);
  KR_CHECK(begun != begun_.end());
  std::string bytes;
  if (begun->second) {
    bytes = *std::move(begun->second);
  } else {
    KR_ASSIGN_OR_RETURN(bytes, Await(id, deadline));
  }
  begun_.erase(begun);
  StoreReply reply;
  if (!Decode(bytes, &reply)) return InternalError("a malformed reply");
  return std::move(reply.entries);
}

}  // namespace keras_ring
