#include "csrc/comm/host/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "csrc/comm/net/local_socket.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

constexpr size_t kBytes = 3 * 4096;

class SharedMemoryTest : public DescriptorTest {
 protected:
  static SharedMemory New(size_t bytes = kBytes) {
    Result<SharedMemory> made = SharedMemory::Create("test", bytes);
    KR_CHECK(made.ok());
    return std::move(made).value();
  }
  static Socket Duplicate(const Socket& descriptor) {
    return Socket(fcntl(descriptor.fd(), F_DUPFD_CLOEXEC, 0));
  }
  static std::pair<Socket, Socket> LocalPair() {
    int pair[2];
    KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                        pair) == 0);
    return {Socket(pair[0]), Socket(pair[1])};
  }
  // Runs `body` in another process; its exit code. 99: killed by a signal.
  static int InAnotherProcess(const std::function<int()>& body) {
    const pid_t child = fork();
    KR_CHECK(child >= 0);
    if (child == 0) _exit(body());
    int status = 0;
    KR_CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
  }
};

TEST_F(SharedMemoryTest, BeginsAsZerosAndIsShared) {
  SharedMemory made = New();
  EXPECT_EQ(made.bytes(), kBytes);
  EXPECT_TRUE(std::all_of(made.data(), made.data() + kBytes,
                          [](char byte) { return byte == 0; }));
  Result<SharedMemory> mapped =
      SharedMemory::Map(Duplicate(made.descriptor()), kBytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  EXPECT_NE(mapped->data(), made.data());
  made.data()[kBytes - 1] = 'a';
  mapped->data()[0] = 'b';
  EXPECT_EQ(mapped->data()[kBytes - 1], 'a');
  EXPECT_EQ(made.data()[0], 'b');
}

TEST_F(SharedMemoryTest, CostsNothingUntilItIsTouched) {
  // Half a terabyte.
  SharedMemory memory = New(size_t{1} << 39);
  memory.data()[memory.bytes() - 1] = 'x';
}

// Touching what is no more would kill the process that does.
TEST_F(SharedMemoryTest, RefusesWhatIsOrMayBecomeTooSmall) {
  SharedMemory small = New(4096);
  EXPECT_EQ(
      SharedMemory::Map(Duplicate(small.descriptor()), 4097).status().code(),
      StatusCode::kInvalidArgument);

  Socket unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.fd(), kBytes), 0);
  EXPECT_EQ(SharedMemory::Map(std::move(unsealed), kBytes).status(),
            InvalidArgumentError("not a sealed segment of 12288 bytes"));

  Result<Socket> no_file = NewEventFd();
  ASSERT_TRUE(no_file.ok());
  EXPECT_EQ(SharedMemory::Map(std::move(*no_file), 1).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedMemory::Map(Socket(), 1).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SharedMemoryTest, NobodyCanChangeItsSize) {
  SharedMemory memory = New();
  for (off_t bytes : {off_t{0}, off_t{4096}, off_t{1} << 20}) {
    EXPECT_EQ(ftruncate(memory.descriptor().fd(), bytes), -1);
    EXPECT_EQ(errno, EPERM);
  }
}

TEST_F(SharedMemoryTest, IsOfItsUserAlone) {
  SharedMemory memory = New();
  struct stat facts = {};
  ASSERT_EQ(fstat(memory.descriptor().fd(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(SharedMemoryTest, MovesWithItsPages) {
  SharedMemory first = New();
  first.data()[0] = 'm';
  char* const pages = first.data();
  SharedMemory second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);
  SharedMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data(), pages);
  EXPECT_EQ(third.bytes(), kBytes);
  EXPECT_EQ(*third.data(), 'm');
}

TEST_F(SharedMemoryTest, OutlivesItsMaker) {
  auto [ours, theirs] = LocalPair();
  const int code = InAnotherProcess([&theirs = theirs] {
    Result<SharedMemory> made = SharedMemory::Create("test", kBytes);
    if (!made.ok()) return 1;
    std::strcpy(made->data(), "from the dead");
    return SendDescriptors(theirs, {made->descriptor().fd()}, Soon()).ok() ? 0
                                                                           : 2;
  });
  ASSERT_EQ(code, 0);
  auto received = ReceiveDescriptors(ours, 1, Soon());
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  Result<SharedMemory> mapped =
      SharedMemory::Map(std::move(received->front()), kBytes);
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  EXPECT_STREQ(mapped->data(), "from the dead");
}

// Of the mappings of /proc/self/smaps that have `name`: whether all are left
// out of a core dump, and how many they are.
std::pair<bool, int> LeftOutOfDumps(const std::string& name) {
  std::ifstream maps("/proc/self/smaps");
  bool all = true, named = false;
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("-") < line.find(" ")) {
      named = line.find(name) != std::string::npos;
      count += named;
    } else if (named && line.rfind("VmFlags:", 0) == 0) {
      all = all && line.find(" dd") != std::string::npos;
    }
  }
  return {all, count};
}

// The system would allocate the pages that nobody has touched in order to dump
// them: of the arenas of all ranks more than there is memory.
TEST_F(SharedMemoryTest, IsLeftOutOfCoreDumps) {
  Result<SharedMemory> made = SharedMemory::Create("to be dumped", kBytes);
  ASSERT_TRUE(made.ok());
  Result<SharedMemory> mapped = SharedMemory::Map(
      Duplicate(made->descriptor()), kBytes, SharedMemory::Access::kRead);
  ASSERT_TRUE(mapped.ok());
  const auto [all, count] = LeftOutOfDumps("to be dumped");
  EXPECT_EQ(count, 2);
  EXPECT_TRUE(all);
}

// Has the system refuse memfd_create with `error` from now on; with a `flag`,
// only where that is not among its flags.
bool RefuseMemfds(int error, uint32_t flag = 0) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flag, 1, 0),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// vm.memfd_noexec is 2.
TEST_F(SharedMemoryTest, MemoryThatMayNotBeExecutedWillDo) {
  EXPECT_EQ(InAnotherProcess([] {
              if (!RefuseMemfds(EACCES, /*MFD_NOEXEC_SEAL*/ 8)) return 1;
              Result<SharedMemory> made = SharedMemory::Create("test", kBytes);
              if (!made.ok()) return 2;
              made->data()[kBytes - 1] = 'x';
              return 0;
            }),
            0);
}

TEST_F(SharedMemoryTest, WithoutMemfdsAFileWillDoIfThatIsWanted) {
  EXPECT_EQ(InAnotherProcess([] {
              if (!RefuseMemfds(EPERM)) return 1;
              Result<SharedMemory> refused =
                  SharedMemory::Create("test", kBytes);
              if (refused.status().code() != StatusCode::kResourceExhausted)
                return 2;
              Result<SharedMemory> made = SharedMemory::Create(
                  "test", kBytes, SharedMemory::Refused::kFile);
              if (!made.ok()) return 3;
              Result<SharedMemory> mapped =
                  SharedMemory::Map(Duplicate(made->descriptor()), kBytes);
              if (!mapped.ok()) return 4;
              mapped->data()[kBytes - 1] = 'x';
              if (made->data()[kBytes - 1] != 'x') return 5;
              // All of it is there.
              struct stat facts = {};
              fstat(made->descriptor().fd(), &facts);
              if (facts.st_blocks * 512 < static_cast<off_t>(kBytes)) return 6;
              // And what is not, is said before it is touched.
              Result<SharedMemory> large = SharedMemory::Create(
                  "test", size_t{1} << 50, SharedMemory::Refused::kFile);
              if (large.ok()) return 7;
              return 0;
            }),
            0);
}

// A child of the program must not be able to harm the job by its copy; it has
// none. Only who maps the segment sees it.
TEST_F(SharedMemoryTest, AForkedChildHasItOnlyIfItMapsIt) {
  SharedMemory memory = New();
  std::strcpy(memory.data(), "parent");
  const int code = InAnotherProcess([&] {
    if (msync(memory.data(), kBytes, MS_ASYNC) == 0 || errno != ENOMEM) {
      return 1;
    }
    Result<SharedMemory> mapped =
        SharedMemory::Map(Duplicate(memory.descriptor()), kBytes);
    if (!mapped.ok() || std::strcmp(mapped->data(), "parent") != 0) return 2;
    std::strcpy(mapped->data(), "child");
    return 0;
  });
  ASSERT_EQ(code, 0);
  EXPECT_STREQ(memory.data(), "child");
}

}  // namespace
}  // namespace keras_ring
