#include "csrc/testing/fake_mpi.h"

#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

struct Message {
  int id = -1;
  std::string copy;            // of an eager one
  const char* data = nullptr;  // of another one
  size_t bytes = 0;
  bool tells = false;  // the sender, when it is received
};

struct Posted {
  int id = -1;
  char* data = nullptr;
  size_t bytes = 0;
};

struct Pipe {
  std::deque<Message> waiting;  // at the sender
  std::deque<Message> on_its_way;
};

struct Network {
  explicit Network(int size, const FakeMpiOptions& options)
      : options(options), done(size), untold(size) {}

  const FakeMpiOptions options;
  Mutex mutex;
  std::map<std::pair<int, int>, Pipe> pipes KR_GUARDED_BY(mutex);
  std::vector<std::deque<MpiDone>> done KR_GUARDED_BY(mutex);  // by rank
  // Messages that their rank is still to be told of.
  std::vector<int> untold KR_GUARDED_BY(mutex);
};

class FakePort final : public MpiPort {
 public:
  FakePort(int rank, std::shared_ptr<Network> network)
      : rank_(rank), network_(std::move(network)) {}

  Status Send(int id, int peer, const void* data, size_t bytes,
              bool until_matched) override {
    MutexLock lock(network_->mutex);
    Message message;
    message.id = id;
    message.bytes = bytes;
    const bool eager = bytes <= network_->options.eager_bytes;
    if (eager) message.copy.assign(static_cast<const char*>(data), bytes);
    if (!eager) message.data = static_cast<const char*>(data);
    message.tells = !eager || until_matched;
    if (message.tells) {
      ++network_->untold[rank_];
    } else {
      network_->done[rank_].push_back({id, 0, OkStatus()});
    }
    network_->pipes[{rank_, peer}].waiting.push_back(std::move(message));
    return OkStatus();
  }

  Status Receive(int id, int peer, void* data, size_t bytes) override {
    posted_[peer].push_back({id, static_cast<char*>(data), bytes});
    return OkStatus();
  }

  std::optional<MpiDone> Test() override {
    MutexLock lock(network_->mutex);
    Depart();
    for (auto& [peer, posted] : posted_) Match(peer, posted);
    std::deque<MpiDone>& done = network_->done[rank_];
    if (done.empty()) return std::nullopt;
    const MpiDone next = done.front();
    done.pop_front();
    return next;
  }

  bool Close() override {
    posted_.clear();
    MutexLock lock(network_->mutex);
    return network_->untold[rank_] == 0;
  }

 private:
  void Depart() KR_REQUIRES(network_->mutex) {
    for (auto& [ends, pipe] : network_->pipes) {
      if (ends.first != rank_) continue;
      while (!pipe.waiting.empty() &&
             pipe.on_its_way.size() < network_->options.window) {
        pipe.on_its_way.push_back(std::move(pipe.waiting.front()));
        pipe.waiting.pop_front();
      }
    }
  }

  void Match(int peer, std::deque<Posted>& posted)
      KR_REQUIRES(network_->mutex) {
    Pipe& pipe = network_->pipes[{peer, rank_}];
    while (!posted.empty() && !pipe.on_its_way.empty()) {
      const Posted to = posted.front();
      posted.pop_front();
      const Message message = std::move(pipe.on_its_way.front());
      pipe.on_its_way.pop_front();
      KR_CHECK(message.bytes <= to.bytes);
      std::memcpy(to.data,
                  message.data != nullptr ? message.data : message.copy.data(),
                  message.bytes);
      network_->done[rank_].push_back({to.id, message.bytes, OkStatus()});
      if (!message.tells) continue;
      --network_->untold[peer];
      network_->done[peer].push_back({message.id, 0, OkStatus()});
    }
  }

  const int rank_;
  const std::shared_ptr<Network> network_;
  std::map<int, std::deque<Posted>> posted_;  // by peer
};

}  // namespace

std::vector<std::unique_ptr<MpiPort>> CreateFakeMpiPorts(
    int size, const FakeMpiOptions& options) {
  auto network = std::make_shared<Network>(size, options);
  std::vector<std::unique_ptr<MpiPort>> ports;
  for (int rank = 0; rank < size; ++rank) {
    ports.push_back(std::make_unique<FakePort>(rank, network));
  }
  return ports;
}

}  // namespace keras_ring
