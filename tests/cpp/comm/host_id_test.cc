#include "csrc/comm/host/host_id.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace keras_ring {
namespace {

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// What a process says that `change` has prepared; empty if it could not.
template <typename Change>
std::string IdAfter(const Change& change) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    const std::string id = change() ? OwnHostId() : "";
    const bool told =
        write(ends[1], id.data(), id.size()) == ssize_t(id.size());
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  char id[512];
  const ssize_t bytes = read(ends[0], id, sizeof(id));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return std::string(id, bytes > 0 ? bytes : 0);
}

TEST(OwnHostIdTest, ProcessesOfAHostHaveTheSame) {
  EXPECT_FALSE(OwnHostId().empty());
  EXPECT_EQ(IdAfter([] { return true; }), OwnHostId());
}

// Containers of a host that share its network can share memory, however they
// are called.
TEST(OwnHostIdTest, TheNameOfTheHostDoesNotMatter) {
  const std::string id = IdAfter([] {
    return unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0 &&
           sethostname("another", 7) == 0;
  });
  if (id.empty()) GTEST_SKIP() << "no namespaces are to be had here";
  EXPECT_EQ(id, OwnHostId());
}

// And those with one of their own cannot meet.
TEST(OwnHostIdTest, ANetworkOfItsOwnIsAHostOfItsOwn) {
  const std::string id =
      IdAfter([] { return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0; });
  if (id.empty()) GTEST_SKIP() << "no namespaces are to be had here";
  EXPECT_NE(id, OwnHostId());
}

// Two hosts with one name.
TEST(OwnHostIdTest, ASystemThatRunsIsNoOther) {
  std::string root = testing::TempDir() + "host_id_XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  EXPECT_EQ(OwnHostId(root), HostName()) << "nothing is told";
  std::filesystem::create_directories(root + "/sys/kernel/random");
  std::ofstream(root + "/sys/kernel/random/boot_id") << "12-34\n";
  const std::string one = OwnHostId(root);
  std::ofstream(root + "/sys/kernel/random/boot_id") << "56-78\n";
  EXPECT_NE(one, OwnHostId(root));
  EXPECT_EQ(one.rfind("12-34/", 0), 0u) << one;
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace keras_ring
