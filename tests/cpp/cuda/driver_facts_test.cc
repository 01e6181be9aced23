// What the fake driver takes for true of the real one. Each fact is a small
// program that runs on both: with KERAS_RING_TEST_DRIVER=real on a device.
//
// Each runs in a process of its own, for some end the use of the driver there,
// and no process that has used it may fork.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/cuda/driver.h"
#include "csrc/cuda/gpu.h"
#include "csrc/cuda/gpu_list.h"
#include "csrc/cuda/kernels/kernel_set.h"
#include "csrc/testing/fake_cuda.h"

namespace keras_ring::cuda {
namespace {

// Fails the process of a fact.
#define KR_FACT(condition)                                                  \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "not so: %s (line %d)\n", #condition, __LINE__); \
      _exit(1);                                                             \
    }                                                                       \
  } while (false)

bool Holds(const std::function<void()>& fact) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    fact();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

const Driver& Tested() { return TestedDriver(); }

// The device, current on this thread.
struct Use {
  Use() : gpu(*Gpu::Open(Tested(), 0)), current(*gpu) {
    KR_FACT(current.status().ok());
    KR_FACT(Tested().cuStreamCreateWithPriority(&stream, kStreamNonBlocking,
                                                0) == kSuccess);
    KR_FACT(Tested().cuStreamCreateWithPriority(&other, kStreamNonBlocking,
                                                0) == kSuccess);
  }
  DevicePointer Allocate(size_t bytes) {
    return ToDevice(*gpu->Allocate(bytes));
  }
  EventHandle NewEvent(unsigned flags = 0) {
    EventHandle event = nullptr;
    KR_FACT(Tested().cuEventCreate(&event, kEventDisableTiming | flags) ==
            kSuccess);
    return event;
  }
  // Keeps a stream busy: the fake one for so long that no machine is too slow
  // to look meanwhile.
  void Busy(Stream on) {
    if (!TestsRealDriver()) {
      fake::GiveWork(on, [] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return true;
      });
      return;
    }
    const size_t bytes = size_t{1} << 30;
    if (busy == 0) busy = Allocate(bytes);
    for (int i = 0; i < 100; ++i) {
      KR_FACT(Tested().cuMemsetD8Async(busy, 1, bytes, on) == kSuccess);
    }
  }
  int Read(DevicePointer memory) {
    int value = 0;
    KR_FACT(gpu->Read(&value, FromDevice(memory), sizeof(value)).ok());
    return value;
  }
  void Set(DevicePointer memory, unsigned char byte, Stream on) {
    KR_FACT(Tested().cuMemsetD8Async(memory, byte, 4, on) == kSuccess);
  }

  std::shared_ptr<Gpu> gpu;
  Gpu::Current current;
  Stream stream = nullptr;
  Stream other = nullptr;
  DevicePointer busy = 0;
};

TEST(DriverFacts, AThreadHasNoContextOfItsOwn) {
  EXPECT_TRUE(Holds([] {
    EventHandle event = nullptr;
    KR_FACT(Tested().cuEventCreate(&event, kEventDisableTiming) ==
            kInvalidContext);
  }));
}

TEST(DriverFacts, AnEventThatWasNeverRecordedIsReached) {
  EXPECT_TRUE(Holds([] {
    Use use;
    EventHandle event = use.NewEvent();
    KR_FACT(Tested().cuEventQuery(event) == kSuccess);
    KR_FACT(Tested().cuEventSynchronize(event) == kSuccess);
    KR_FACT(Tested().cuStreamWaitEvent(use.stream, event, 0) == kSuccess);
    KR_FACT(Tested().cuStreamSynchronize(use.stream) == kSuccess);
  }));
}

TEST(DriverFacts, CallsReturnBeforeTheWorkIsDone) {
  EXPECT_TRUE(Holds([] {
    Use use;
    EventHandle event = use.NewEvent();
    use.Busy(use.stream);
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    KR_FACT(Tested().cuEventQuery(event) == kNotReady);
    KR_FACT(Tested().cuEventSynchronize(event) == kSuccess);
    KR_FACT(Tested().cuEventQuery(event) == kSuccess);
  }));
}

TEST(DriverFacts, AStreamWaitsForAnEventOfAnotherOne) {
  EXPECT_TRUE(Holds([] {
    Use use;
    const DevicePointer memory = use.Allocate(4);
    EventHandle event = use.NewEvent();
    use.Busy(use.stream);
    use.Set(memory, 1, use.stream);
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    KR_FACT(Tested().cuStreamWaitEvent(use.other, event, 0) == kSuccess);
    use.Set(memory, 2, use.other);
    KR_FACT(Tested().cuStreamSynchronize(use.other) == kSuccess);
    KR_FACT(Tested().cuEventQuery(event) == kSuccess);
    KR_FACT(use.Read(memory) == 0x02020202);
  }));
}

// A wait holds the record that was the latest when it was given.
TEST(DriverFacts, AnEventThatIsRecordedAgainDoesNotPutOffEarlierWaits) {
  EXPECT_TRUE(Holds([] {
    Use use;
    EventHandle event = use.NewEvent();
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    KR_FACT(Tested().cuStreamWaitEvent(use.other, event, 0) == kSuccess);
    EventHandle behind = use.NewEvent();
    KR_FACT(Tested().cuEventRecord(behind, use.other) == kSuccess);
    use.Busy(use.stream);
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    KR_FACT(Tested().cuEventSynchronize(behind) == kSuccess);
    KR_FACT(Tested().cuEventQuery(event) == kNotReady);
  }));
}

TEST(DriverFacts, WhatAStreamWasGivenIsDoneAlthoughItIsDestroyed) {
  EXPECT_TRUE(Holds([] {
    Use use;
    const DevicePointer memory = use.Allocate(4);
    use.Set(memory, 0, use.stream);
    EventHandle event = use.NewEvent();
    use.Busy(use.stream);
    use.Set(memory, 7, use.stream);
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    KR_FACT(Tested().cuStreamDestroy(use.stream) == kSuccess);
    KR_FACT(Tested().cuEventSynchronize(event) == kSuccess);
    KR_FACT(use.Read(memory) == 0x07070707);
  }));
}

TEST(DriverFacts, NoBytesCannotBeAllocated) {
  EXPECT_TRUE(Holds([] {
    Use use;
    DevicePointer memory = 0;
    KR_FACT(Tested().cuMemAlloc(&memory, 0) == kInvalidValue);
  }));
}

TEST(DriverFacts, AnAllocationHasANumberThatIsNotUsedAgain) {
  EXPECT_TRUE(Holds([] {
    Use use;
    std::vector<unsigned long long> numbers;
    for (int i = 0; i < 10; ++i) {
      const DevicePointer memory = use.Allocate(1 << 20);
      unsigned long long number = 0;
      unsigned long long inside = 0;
      KR_FACT(Tested().cuPointerGetAttribute(&number, kPointerBufferId,
                                             memory) == kSuccess);
      KR_FACT(Tested().cuPointerGetAttribute(&inside, kPointerBufferId,
                                             memory + 4096) == kSuccess);
      KR_FACT(inside == number);
      for (unsigned long long earlier : numbers) KR_FACT(earlier != number);
      numbers.push_back(number);
      use.gpu->Free(FromDevice(memory));
    }
  }));
}

TEST(DriverFacts, AnAddressTellsItsAllocation) {
  EXPECT_TRUE(Holds([] {
    Use use;
    const DevicePointer memory = use.Allocate(3000);
    DevicePointer base = 0;
    size_t bytes = 0;
    KR_FACT(Tested().cuMemGetAddressRange(&base, &bytes, memory + 1000) ==
            kSuccess);
    KR_FACT(base <= memory && memory + 3000 <= base + bytes);
  }));
}

TEST(DriverFacts, AHandleOfMemoryIsForOtherProcesses) {
  EXPECT_TRUE(Holds([] {
    Use use;
    const DevicePointer memory = use.Allocate(1 << 20);
    IpcMemoryHandle handle;
    KR_FACT(Tested().cuIpcGetMemHandle(&handle, memory) == kSuccess);
    DevicePointer opened = 0;
    KR_FACT(Tested().cuIpcOpenMemHandle(&opened, handle,
                                        kIpcLazyEnablePeerAccess) != kSuccess);
  }));
}

TEST(DriverFacts, AnEventThatIsForOneProcessHasNoHandle) {
  EXPECT_TRUE(Holds([] {
    Use use;
    IpcEventHandle handle;
    KR_FACT(Tested().cuIpcGetEventHandle(&handle, use.NewEvent()) != kSuccess);
    KR_FACT(Tested().cuIpcGetEventHandle(
                &handle, use.NewEvent(kEventInterprocess)) == kSuccess);
  }));
}

// What the context was given fails, and all that comes after it.
TEST(DriverFacts, AnAddressThatIsNoneEndsTheContext) {
  EXPECT_TRUE(Holds([] {
    Use use;
    auto kernels = KernelSet::Load(use.gpu);
    KR_FACT(kernels.ok());
    CopyArguments args = {};
    const DevicePointer memory = use.Allocate(1 << 20);
    args.only = {FromDevice(memory), reinterpret_cast<void*>(0x10), 64, 0, 0};
    args.num_rows = 1;
    args.num_tiles = 1;
    KR_FACT((*kernels)->Copy(args, use.stream).ok());
    KR_FACT(Tested().cuStreamSynchronize(use.stream) == kIllegalAddress);
    DevicePointer more = 0;
    KR_FACT(Tested().cuMemAlloc(&more, 64) == kIllegalAddress);
    EventHandle event = nullptr;
    KR_FACT(Tested().cuEventCreate(&event, kEventDisableTiming) ==
            kIllegalAddress);
  }));
}

// Two processes: what the first shows, and how it goes on.
struct Shown {
  IpcMemoryHandle memory;
  IpcEventHandle event;
};

class Pipe {
 public:
  Pipe() { KR_CHECK(pipe(ends_) == 0); }
  template <typename T>
  void Send(const T& value) {
    KR_CHECK(write(ends_[1], &value, sizeof(value)) == sizeof(value));
  }
  template <typename T>
  T Receive() {
    T value;
    KR_FACT(read(ends_[0], &value, sizeof(value)) == sizeof(value));
    return value;
  }

 private:
  int ends_[2];
};

TEST(DriverFacts, AProcessWaitsForTheEventOfAnotherAndReadsItsMemory) {
  Pipe there;
  Pipe back;
  const pid_t owner = fork();
  if (owner == 0) {
    alarm(60);
    Use use;
    const DevicePointer memory = use.Allocate(1 << 20);
    EventHandle event = use.NewEvent(kEventInterprocess);
    Shown shown;
    KR_FACT(Tested().cuIpcGetMemHandle(&shown.memory, memory) == kSuccess);
    KR_FACT(Tested().cuIpcGetEventHandle(&shown.event, event) == kSuccess);
    for (int round = 1; round <= 3; ++round) {
      use.Busy(use.stream);
      use.Set(memory + 4096, static_cast<unsigned char>(round), use.stream);
      KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
      if (round == 1) there.Send(shown);
      there.Send(round);
      back.Receive<int>();
    }
    _exit(0);
  }
  EXPECT_TRUE(Holds([&] {
    Use use;
    const Shown shown = there.Receive<Shown>();
    DevicePointer memory = 0;
    EventHandle event = nullptr;
    KR_FACT(Tested().cuIpcOpenMemHandle(&memory, shown.memory,
                                        kIpcLazyEnablePeerAccess) == kSuccess);
    KR_FACT(Tested().cuIpcOpenEventHandle(&event, shown.event) == kSuccess);
    const DevicePointer copy = use.Allocate(4);
    for (int round = 1; round <= 3; ++round) {
      there.Receive<int>();
      KR_FACT(Tested().cuStreamWaitEvent(use.stream, event, 0) == kSuccess);
      KR_FACT(Tested().cuMemcpyDtoDAsync(copy, memory + 4096, 4, use.stream) ==
              kSuccess);
      KR_FACT(Tested().cuStreamSynchronize(use.stream) == kSuccess);
      KR_FACT(use.Read(copy) == 0x01010101 * round);
      back.Send(round);
    }
    KR_FACT(Tested().cuIpcCloseMemHandle(memory) == kSuccess);
  }));
  int status = 0;
  waitpid(owner, &status, 0);
  EXPECT_EQ(status, 0);
}

// What a wait for the event of a process that was killed does: the fake's never
// ends. Here the real driver's answer is printed; nothing of ours depends on
// it, as every wait has a limit.
TEST(DriverFacts, TheEventOfAProcessThatWasKilled) {
  Pipe there;
  const pid_t owner = fork();
  if (owner == 0) {
    alarm(60);
    Use use;
    const DevicePointer memory = use.Allocate(1 << 20);
    EventHandle event = use.NewEvent(kEventInterprocess);
    Shown shown;
    KR_FACT(Tested().cuIpcGetMemHandle(&shown.memory, memory) == kSuccess);
    KR_FACT(Tested().cuIpcGetEventHandle(&shown.event, event) == kSuccess);
    for (int i = 0; i < 20; ++i) use.Busy(use.stream);
    KR_FACT(Tested().cuEventRecord(event, use.stream) == kSuccess);
    there.Send(shown);
    for (;;) pause();
  }
  EXPECT_TRUE(Holds([&] {
    Use use;
    const Shown shown = there.Receive<Shown>();
    DevicePointer memory = 0;
    EventHandle event = nullptr;
    KR_FACT(Tested().cuIpcOpenMemHandle(&memory, shown.memory,
                                        kIpcLazyEnablePeerAccess) == kSuccess);
    KR_FACT(Tested().cuIpcOpenEventHandle(&event, shown.event) == kSuccess);
    const DevicePointer copy = use.Allocate(4);
    KR_FACT(Tested().cuStreamWaitEvent(use.stream, event, 0) == kSuccess);
    EventHandle behind = use.NewEvent();
    KR_FACT(Tested().cuEventRecord(behind, use.stream) == kSuccess);
    KR_FACT(Tested().cuEventQuery(behind) == kNotReady);
    kill(owner, SIGKILL);
    const auto began = std::chrono::steady_clock::now();
    const auto passed = [began] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                           began)
          .count();
    };
    ErrorCode code = kNotReady;
    while (code == kNotReady && passed() < 5) {
      code = Tested().cuEventQuery(behind);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::printf("after the kill: cuEventQuery gave %d in %.3f s\n", code,
                passed());
    const ErrorCode read =
        Tested().cuMemcpyDtoDAsync(copy, memory, 4, use.other);
    const ErrorCode done = Tested().cuStreamSynchronize(use.other);
    std::printf("a copy from its memory: %d, done: %d\n", read, done);
    std::fflush(stdout);
    // The stream never ends; the process does.
    alarm(20);
    const auto ends = std::chrono::steady_clock::now();
    there.Send(ends);
    std::exit(0);
  }));
  std::printf("the process ended in %.3f s\n",
              std::chrono::duration<double>(
                  std::chrono::steady_clock::now() -
                  there.Receive<std::chrono::steady_clock::time_point>())
                  .count());
  int status = 0;
  waitpid(owner, &status, 0);
}

TEST(DriverFacts, DevicesAreDescribedWithoutUse) {
  EXPECT_TRUE(Holds([] {
    const auto all = ListGpus(Tested());
    KR_FACT(all.ok());
    KR_FACT(!all->empty());
    for (const GpuFacts& facts : *all) {
      KR_FACT(!facts.name.empty());
      KR_FACT(facts.uuid.size() == 40 && facts.uuid.rfind("GPU-", 0) == 0);
      KR_FACT(facts.bus.find(':') != std::string::npos);
      KR_FACT(facts.bytes > (1 << 30));
      KR_FACT(facts.major >= 3);
    }
    Context context = nullptr;
    KR_FACT(Tested().cuCtxPopCurrent(&context) != kSuccess);
  }));
}

}  // namespace
}  // namespace keras_ring::cuda
