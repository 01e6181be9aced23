#include "csrc/testing/faulty_transport.h"

#include <string>
#include <utility>

namespace keras_ring {

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner,
                                 const Fault& fault)
    : rank_(inner->rank()),
      size_(inner->size()),
      fault_(fault),
      inner_(std::move(inner)) {}

Status FaultyTransport::Run(SendReceivePlan& plan) {
  if (inner() == nullptr) return UnavailableError("this rank has vanished");
  const bool now = runs_++ == fault_.run;
  switch (now ? fault_.kind : Fault::Kind::kNone) {
    case Fault::Kind::kNone:
      return inner()->Run(plan);
    case Fault::Kind::kFail:
      return RunUntilFault(plan);
    case Fault::Kind::kVanish: {
      Status status = RunUntilFault(plan);
      MutexLock lock(mutex_);
      inner_.reset();
      return status;
    }
    case Fault::Kind::kDelay:
      AwaitDelay();
      return inner()->Run(plan);
    case Fault::Kind::kFlipTag:
      plan.tag ^= 1;
      return inner()->Run(plan);
  }
  return InternalError("unknown kind of fault");
}

Status FaultyTransport::RunUntilFault(SendReceivePlan& plan) {
  const Status cause =
      InternalError("rank " + std::to_string(rank_) + " fails on request");
  if (fault_.after_receives == 0) {
    inner()->Abort(cause);
    return cause;
  }
  auto advance = std::move(plan.advance);
  plan.advance = [&, advance](SendReceivePlan& p) {
    size_t received = 0;
    for (const Incoming& incoming : p.incoming) received += incoming.received;
    if (received >= fault_.after_receives) inner()->Abort(cause);
    if (advance) advance(p);
  };
  return inner()->Run(plan);
}

void FaultyTransport::AwaitDelay() {
  MutexLock lock(mutex_);
  changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + fault_.delay,
                     [this]() KR_REQUIRES(mutex_) { return aborted_; });
}

void FaultyTransport::Abort(const Status& cause) {
  {
    MutexLock lock(mutex_);
    aborted_ = true;
  }
  changed_.NotifyAll();
  if (std::shared_ptr<Transport> inner = this->inner()) inner->Abort(cause);
}

std::shared_ptr<Transport> FaultyTransport::inner() {
  MutexLock lock(mutex_);
  return inner_;
}

}  // namespace keras_ring
