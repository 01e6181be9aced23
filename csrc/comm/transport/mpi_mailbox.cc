#include "csrc/comm/transport/mpi_mailbox.h"

#include <algorithm>
#include <cstring>

namespace keras_ring {
namespace {

// Not zeroed: unused pages take no memory.
std::unique_ptr<char[]> NewBuffer() {
  return std::unique_ptr<char[]>(new char[kMpiMessageBytes]);
}

}  // namespace

MpiOutbox::MpiOutbox(int peer, int first_id)
    : peer_(peer), first_id_(first_id) {}

Result<Moved> MpiOutbox::Send(MpiPort& port, SendCursor& from) {
  if (num_busy_ == kMpiMessages) return Moved{0, /*blocked=*/true};
  Parts parts(kMpiMessageBytes);
  from.AddTo(parts);
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  if (bytes == 0) {  // only empty segments are released
    from.Skip(0);
    return Moved();
  }
  int index = 0;
  while (messages_[index].busy) ++index;
  Message& message = messages_[index];
  if (message.bytes == nullptr) message.bytes = NewBuffer();
  char* to = message.bytes.get();
  for (const iovec& part : parts) {
    std::memcpy(to, part.iov_base, part.iov_len);
    to += part.iov_len;
  }
  from.Skip(bytes);
  KR_RETURN_IF_ERROR(port.Send(first_id_ + index, peer_, message.bytes.get(),
                               bytes, /*until_matched=*/from.done()));
  message.busy = true;
  ++num_busy_;
  return Moved{bytes};
}

void MpiOutbox::Done(int id) {
  Message& message = messages_[id - first_id_];
  KR_CHECK(message.busy);
  message.busy = false;
  --num_busy_;
}

MpiInbox::MpiInbox(int peer, int first_id) : peer_(peer), first_id_(first_id) {}

Status MpiInbox::Receive(MpiPort& port, int index) {
  Message& message = messages_[index];
  message.here = false;
  return port.Receive(first_id_ + index, peer_, message.bytes.get(),
                      kMpiMessageBytes);
}

Status MpiInbox::Open(MpiPort& port) {
  if (open_) return OkStatus();
  open_ = true;
  for (int index = 0; index < kMpiMessages; ++index) {
    messages_[index].bytes = NewBuffer();
    KR_RETURN_IF_ERROR(Receive(port, index));
  }
  return OkStatus();
}

Result<Moved> MpiInbox::Take(MpiPort& port, ReceiveCursor& to) {
  Message& message = messages_[next_];
  Parts parts(message.here ? message.size - message.taken : kMpiMessageBytes);
  to.AddTo(parts);
  if (parts.count() == 0) {  // only empty segments are allowed
    KR_RETURN_IF_ERROR(to.Fill(0));
    return Moved();
  }
  if (!message.here) return Moved{0, /*blocked=*/true};
  size_t bytes = 0;
  for (const iovec& part : parts) {
    std::memcpy(part.iov_base, message.bytes.get() + message.taken + bytes,
                part.iov_len);
    bytes += part.iov_len;
  }
  message.taken += bytes;
  KR_RETURN_IF_ERROR(to.Fill(bytes));
  if (message.taken < message.size) {
    if (!to.done()) return Moved{bytes};
    return InternalError(to.PeerText() + " sent more than it had announced");
  }
  KR_RETURN_IF_ERROR(Receive(port, next_));
  next_ = (next_ + 1) % kMpiMessages;
  return Moved{bytes};
}

void MpiInbox::Done(int id, size_t bytes) {
  Message& message = messages_[id - first_id_];
  message.here = true;
  message.size = bytes;
  message.taken = 0;
}

}  // namespace keras_ring
