#include "csrc/comm/host/memory_holder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace keras_ring {
namespace {

constexpr int kPatience = 20000;  // looks, of a millisecond each

bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < kPatience; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Of /proc/<pid>/stat; empty: there is no such process.
std::string StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')');
  return name == std::string::npos ? "" : text.substr(name + 2, 1);
}

size_t ResidentPages(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

std::string NameOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// A process with a holder. This one adopts the holder when that process ends.
class Held {
 public:
  // `then` runs in it, once the holder does.
  explicit Held(const std::function<void(MemoryHolder&)>& then) {
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      MemoryHolder holder;
      const Status status = holder.Start();
      const pid_t pid = status.ok() ? holder.pid() : -1;
      if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
      if (pid > 0) then(holder);
      _exit(0);
    }
    close(ends[1]);
    connection_ = ends[0];
    EXPECT_EQ(read(connection_, &holder_, sizeof(holder_)), sizeof(holder_));
    EXPECT_GT(holder_, 0);
  }
  ~Held() {
    kill(process_, SIGKILL);
    while (waitpid(-1, nullptr, __WALL) > 0) {
    }
    close(connection_);
  }

  pid_t process() const { return process_; }
  pid_t holder() const { return holder_; }
  // Returns when the last process with the other end has closed it.
  bool AwaitClose() const {
    char byte;
    return read(connection_, &byte, 1) == 0;
  }
  void AwaitProcess() const {
    EXPECT_EQ(waitpid(process_, nullptr, 0), process_);
  }
  // By the system, that is: it is this process that has to wait for it.
  bool HolderEnds() const {
    return Eventually([this] { return StateOf(holder_) == "Z"; });
  }

 private:
  pid_t process_ = 0;
  pid_t holder_ = 0;
  int connection_ = -1;
};

void Pause(MemoryHolder&) {
  for (;;) pause();
}

constexpr size_t kBytes = 64 << 20;

void Touch() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) _exit(1);
  std::memset(memory, 1, kBytes);
}

// The holder is stopped, so that it still has what it would else free next.
TEST(MemoryHolder, ConnectionsOfTheDeadCloseBeforeTheirMemoryIsFreed) {
  Held held([](MemoryHolder& holder) {
    Touch();
    kill(holder.pid(), SIGSTOP);
    Pause(holder);
  });
  ASSERT_TRUE(Eventually([&] { return StateOf(held.holder()) == "T"; }));
  kill(held.process(), SIGKILL);
  EXPECT_TRUE(held.AwaitClose());
  held.AwaitProcess();
  EXPECT_GE(ResidentPages(held.holder()) * sysconf(_SC_PAGESIZE), kBytes);
  kill(held.holder(), SIGCONT);
  EXPECT_TRUE(held.HolderEnds());
}

TEST(MemoryHolder, EndsWithItsProcess) {
  Held killed(&Pause);
  EXPECT_EQ(NameOf(killed.holder()), "kr-holder");
  kill(killed.process(), SIGKILL);
  killed.AwaitProcess();
  EXPECT_TRUE(killed.HolderEnds());

  Held returned([](MemoryHolder&) {});
  returned.AwaitProcess();
  EXPECT_TRUE(returned.HolderEnds());
}

// The memory of the program before is of no use to anybody.
TEST(MemoryHolder, EndsWhenAnotherProgramRuns) {
  Held held([](MemoryHolder&) { execlp("sleep", "sleep", "600", nullptr); });
  EXPECT_TRUE(Eventually([&] { return NameOf(held.process()) == "sleep"; }));
  EXPECT_TRUE(Eventually([&] { return StateOf(held.holder()) == "Z"; }));
  EXPECT_NE(StateOf(held.process()), "");
}

// Signals to a session or a group are for the program.
TEST(MemoryHolder, TakesNoSignals) {
  Held held(&Pause);
  for (int signum : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD}) {
    kill(held.holder(), signum);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(StateOf(held.holder()), "S");
}

TEST(MemoryHolder, LeavesNothingBehind) {
  MemoryHolder holder;
  ASSERT_TRUE(holder.Start().ok());
  const pid_t pid = holder.pid();
  EXPECT_NE(StateOf(pid), "");
  // It is no child that anybody else waits for.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  holder.Stop();
  EXPECT_EQ(StateOf(pid), "");
  EXPECT_EQ(holder.pid(), 0);
  holder.Stop();
}

TEST(MemoryHolder, HasNoFiles) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  MemoryHolder holder;
  ASSERT_TRUE(holder.Start().ok());
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

TEST(MemoryHolder, OutlivesAForkOfItsProcess) {
  MemoryHolder holder;
  ASSERT_TRUE(holder.Start().ok());
  const pid_t child = fork();
  if (child == 0) {
    holder.Stop();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(StateOf(holder.pid()), "S");
}

}  // namespace
}  // namespace keras_ring
