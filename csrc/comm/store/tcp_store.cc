#include "csrc/comm/store/tcp_store.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/base/wire.h"
#include "csrc/comm/store/store_message.h"

namespace keras_ring {
namespace {

// A rank asks for two things and waits for one; far more is a fault.
constexpr size_t kMaxWaitsPerClient = 16;

constexpr Duration kFirstPause = std::chrono::milliseconds(5);
constexpr Duration kLongestPause = std::chrono::milliseconds(200);

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
  std::vector<pollfd> entries;
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

    entries.clear();
    entries.push_back({wake_.fd(), POLLIN, 0});
    for (const Client& client : clients_) {
      bool writes = client.connection.wants_write();
      entries.push_back({client.connection.socket().fd(),
                         static_cast<short>(POLLIN | (writes ? POLLOUT : 0)),
                         0});
    }
    if (poll(entries.data(), entries.size(),
             ending ? last.PollTimeoutMs() : -1) < 0 &&
        errno != EINTR) {
      KR_LOG(kError) << "the store has stopped: poll: " << ErrnoText(errno);
      return;
    }
    if (entries[0].revents != 0) ClearSignal(wake_);
    size_t entry = 1;
    for (Client& client : clients_) {
      short events = entries[entry++].revents;
      if ((events & POLLOUT) != 0) client.connection.Flush();
      if ((events & ~POLLOUT) != 0) ReadFrom(client);
    }
  }
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
  }
}

void TcpStoreServer::ReadFrom(Client& client) {
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
    if (heard_) heard_(request.key, request.value);
    client.connection.Send(Encode(StoreReply{request.id, {}}));
    return OkStatus();
  }
  if (client.waits.size() == kMaxWaitsPerClient) {
    return InternalError("too many requests at once");
  }
  client.waits.push_back(
      {request.id, request.key, static_cast<size_t>(request.at_least)});
  return OkStatus();
}

void TcpStoreServer::AnswerWaits() {
  for (Client& client : clients_) {
    auto answered = [&](const Wait& wait) {
      auto found = entries_.TryList(wait.prefix, wait.at_least);
      if (!found) return false;
      client.connection.Send(Encode(StoreReply{wait.id, *std::move(found)}));
      return true;
    };
    auto& waits = client.waits;
    waits.erase(std::remove_if(waits.begin(), waits.end(), answered),
                waits.end());
  }
}

// The keys must be gone before a later client is read from, or a rank that
// left and came again would be there twice. Clients are read from in the order
// in which they came.
void TcpStoreServer::Drop(Client& client) {
  client.gone = true;
  // Once the job is complete its table must outlive them.
  if (!sealed_) return entries_.RemoveOwner(client.number);
  if (client.last_word.empty()) return;
  if (!entries_.SetIfMissing(client.last_word, "")) return;
  if (heard_) heard_(client.last_word, "");
}

void TcpStoreServer::RemoveGoneClients() {
  size_t removed = 0;
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (!it->gone) {
      ++it;
      continue;
    }
    it = clients_.erase(it);
    ++removed;
  }
  if (removed == 0) return;
  MutexLock lock(mutex_);
  num_clients_ -= removed;
  alone_.NotifyAll();
}

bool TcpStoreServer::EndIfAlone() {
  MutexLock lock(mutex_);
  ended_ = num_clients_ == 0;
  return ended_;
}

TcpStoreClient::TcpStoreClient(Link link)
    : connection_(std::move(link), kMaxStoreReplyBytes) {}

Result<std::unique_ptr<TcpStoreClient>> TcpStoreClient::Connect(
    const std::string& host, uint16_t port, const JobKey& key, int rank,
    Deadline deadline, Tls* tls) {
  const Hello hello = {LinkKind::kStore, rank, 0};
  Duration pause = kFirstPause;
  Status last;  // why it did not work, when the deadline comes
  while (true) {
    Result<Socket> socket = keras_ring::Connect(host, port, deadline);
    Status status = socket.status();
    if (socket.ok()) {
      Result<Link> link =
          OpenLink(std::move(socket).value(), key, hello, tls, deadline);
      if (link.ok()) {
        return std::unique_ptr<TcpStoreClient>(
            new TcpStoreClient(std::move(link).value()));
      }
      status = link.status();
    }
    if (status.code() == StatusCode::kDeadlineExceeded && !last.ok()) {
      return last;
    }
    if (status.code() != StatusCode::kUnavailable) return status;
    if (deadline.expired()) return status;
    last = status;
    Pause(pause, deadline);
    pause = std::min(2 * pause, kLongestPause);
  }
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
