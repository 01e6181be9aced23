#include "csrc/comm/transport/mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <locale>
#include <sstream>
#include <type_traits>
#include <utility>

namespace keras_ring {
namespace {

constexpr int kSuccess = 0;  // MPI_SUCCESS
// More than any MPI has: MPI_MAX_ERROR_STRING, and an MPI_Status.
constexpr size_t kErrorTextBytes = 4096;
constexpr size_t kStatusBytes = 256;
// Looks at receives that were taken back, until there are none.
constexpr int kLooksWhenClosing = 1000;

struct MpiStatus {
  alignas(std::max_align_t) char bytes[kStatusBytes];
};

// Looks up a function of MPI and stores it.
template <typename Function>
Status Find(void* library, const char* name, Function* function) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    return FailedPreconditionError(std::string("the MPI of mpi4py has no ") +
                                   name);
  }
  *function = reinterpret_cast<Function>(found);
  return OkStatus();
}

// `Handle`: int or void*.
template <typename Handle>
struct MpiFunctions {
  int (*send)(const void* data, int count, Handle type, int rank, int tag,
              Handle communicator, Handle* request) = nullptr;
  int (*synchronous_send)(const void* data, int count, Handle type, int rank,
                          int tag, Handle communicator,
                          Handle* request) = nullptr;
  int (*receive)(void* data, int count, Handle type, int rank, int tag,
                 Handle communicator, Handle* request) = nullptr;
  int (*test_any)(int count, Handle* requests, int* index, int* is_done,
                  MpiStatus* status) = nullptr;
  int (*get_count)(const MpiStatus* status, Handle type, int* count) = nullptr;
  int (*cancel)(Handle* request) = nullptr;
  int (*free_communicator)(Handle* communicator) = nullptr;
  int (*is_finalized)(int* is) = nullptr;
  int (*error_text)(int error, char* text, int* length) = nullptr;

  Status FindAll(void* library) {
    KR_RETURN_IF_ERROR(Find(library, "MPI_Isend", &send));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Issend", &synchronous_send));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Irecv", &receive));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Testany", &test_any));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Get_count", &get_count));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Cancel", &cancel));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Comm_free", &free_communicator));
    KR_RETURN_IF_ERROR(Find(library, "MPI_Finalized", &is_finalized));
    return Find(library, "MPI_Error_string", &error_text);
  }
};

template <typename Handle>
Handle HandleOf(uint64_t value) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(value);
  } else {
    return static_cast<Handle>(value);
  }
}

template <typename Handle>
class LibraryPort final : public MpiPort {
 public:
  LibraryPort(const MpiFunctions<Handle>& mpi, const MpiSettings& settings,
              std::vector<MpiPeer> peers, bool owns_communicator)
      : mpi_(mpi),
        communicator_(HandleOf<Handle>(settings.communicator)),
        byte_(HandleOf<Handle>(settings.byte_type)),
        peers_(std::move(peers)),
        owns_communicator_(owns_communicator) {}

  Status Send(int id, int peer, const void* data, size_t bytes,
              bool until_matched) override {
    const auto send = until_matched ? mpi_.synchronous_send : mpi_.send;
    Handle request;
    const int error =
        send(data, static_cast<int>(bytes), byte_, peers_[peer].rank,
             peers_[peer].send_tag, communicator_, &request);
    return Started(error, id, request, /*is_receive=*/false);
  }

  Status Receive(int id, int peer, void* data, size_t bytes) override {
    Handle request;
    const int error =
        mpi_.receive(data, static_cast<int>(bytes), byte_, peers_[peer].rank,
                     peers_[peer].receive_tag, communicator_, &request);
    return Started(error, id, request, /*is_receive=*/true);
  }

  std::optional<MpiDone> Test() override {
    if (requests_.empty()) return std::nullopt;
    int index = 0;
    int is_done = 0;
    MpiStatus status;
    const int error =
        mpi_.test_any(static_cast<int>(requests_.size()), requests_.data(),
                      &index, &is_done, &status);
    const int count = static_cast<int>(requests_.size());
    if (error != kSuccess) {
      // MPI may not report which message has failed.
      index = std::clamp(index, 0, count - 1);
      return MpiDone{Remove(index).id, 0, ErrorOf(error)};
    }
    if (is_done == 0 || index < 0 || index >= count) return std::nullopt;
    const Message done = Remove(index);
    int bytes = 0;
    if (done.is_receive) mpi_.get_count(&status, byte_, &bytes);
    return MpiDone{done.id, static_cast<size_t>(bytes), OkStatus()};
  }

  bool Close() override {
    int is_finalized = 0;
    mpi_.is_finalized(&is_finalized);
    // MPI_Finalize has ended everything in flight, and MPI must not be called.
    if (is_finalized != 0) return true;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (messages_[i].is_receive) mpi_.cancel(&requests_[i]);
    }
    for (int i = 0; i < kLooksWhenClosing && !requests_.empty(); ++i) {
      (void)Test();
    }
    if (!requests_.empty()) return false;
    if (owns_communicator_) mpi_.free_communicator(&communicator_);
    return true;
  }

 private:
  struct Message {
    int id;
    bool is_receive;
  };

  Status Started(int error, int id, Handle request, bool is_receive) {
    if (error != kSuccess) return ErrorOf(error);
    requests_.push_back(request);
    messages_.push_back({id, is_receive});
    return OkStatus();
  }

  Message Remove(int index) {
    const Message removed = messages_[index];
    requests_[index] = requests_.back();
    messages_[index] = messages_.back();
    requests_.pop_back();
    messages_.pop_back();
    return removed;
  }

  Status ErrorOf(int error) const {
    char text[kErrorTextBytes] = {};
    int length = 0;
    mpi_.error_text(error, text, &length);
    return UnavailableError("MPI: " + std::string(text));
  }

  const MpiFunctions<Handle> mpi_;
  Handle communicator_;
  const Handle byte_;
  const std::vector<MpiPeer> peers_;
  const bool owns_communicator_;
  // The messages in flight; the same index in both.
  std::vector<Handle> requests_;
  std::vector<Message> messages_;
};

template <typename Handle>
Result<std::unique_ptr<MpiPort>> NewPort(void* library,
                                         const MpiSettings& settings,
                                         std::vector<MpiPeer> peers,
                                         bool owns_communicator) {
  MpiFunctions<Handle> mpi;
  KR_RETURN_IF_ERROR(mpi.FindAll(library));
  return std::unique_ptr<MpiPort>(std::make_unique<LibraryPort<Handle>>(
      mpi, settings, std::move(peers), owns_communicator));
}

}  // namespace

Result<MpiSettings> MpiSettings::Parse(const std::string& text) {
  std::istringstream words(text);
  words.imbue(std::locale::classic());
  MpiSettings settings;
  words >> settings.handle_bytes >> settings.communicator >> settings.byte_type;
  words.get();  // the blank
  std::getline(words, settings.path);
  if (words.fail() || settings.path.empty()) {
    return InvalidArgumentError(
        "KERAS_RING_MPI is '" + text +
        "': expected the size of a handle, a communicator, MPI_BYTE and a "
        "path; init() sets it");
  }
  return settings;
}

Result<std::unique_ptr<MpiPort>> NewMpiPort(const MpiSettings& settings,
                                            std::vector<MpiPeer> peers,
                                            bool owns_communicator) {
  // Its own search: no other MPI is found, whatever the process has loaded.
  void* const library =
      dlopen(settings.path.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPreconditionError("KERAS_RING_MPI names '" + settings.path +
                                   "', which this process has not loaded");
  }
  if (settings.handle_bytes == sizeof(int)) {
    return NewPort<int>(library, settings, std::move(peers), owns_communicator);
  }
  if (settings.handle_bytes == sizeof(void*)) {
    return NewPort<void*>(library, settings, std::move(peers),
                          owns_communicator);
  }
  return FailedPreconditionError(
      "the handles of mpi4py's MPI have " +
      std::to_string(settings.handle_bytes) +
      " bytes; expected those of an int or of a pointer");
}

}  // namespace keras_ring
