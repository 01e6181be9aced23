#include "csrc/runtime/diagnostics/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "csrc/base/digest_text.h"
#include "csrc/base/sha256.h"

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <typename Number>
Number NumberAt(const std::string& bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

std::string TextOf(const std::string& page) {
  return page.substr(64, NumberAt<uint32_t>(page, 12));
}

// As a reader finds it, who knows the text alone.
uint64_t CounterOf(const std::string& page, const std::string& name) {
  const std::string text = TextOf(page);
  const std::string begin = "[\"" + name + "\",\"";
  size_t at = text.find(begin);
  EXPECT_NE(at, std::string::npos);
  at = text.find("\",", at + begin.size()) + 2;
  return NumberAt<uint64_t>(page, std::stoul(text.substr(at)));
}

class StatusPageTest : public testing::Test {
 protected:
  StatusPageTest() {
    std::string path = testing::TempDir() + "status.XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    options_.status_directory = path;
    options_.rank = 2;
    options_.size = 4;
    options_.job_key = std::string(64, 'a');
  }
  Options options_;
};

TEST_F(StatusPageTest, ShowsCountersAsTheyAre) {
  const auto page = StatusPage::Create(options_).value();
  EXPECT_THAT(page->path(),
              HasSubstr("/" + StatusJobName(options_) + "/rank.2." +
                        std::to_string(getpid()) + ".page"));
  page->counters().buckets = 7;
  // Nobody takes it for one before it says whose it is.
  EXPECT_EQ(Read(page->path())[0], '\0');
  ASSERT_TRUE(page->Publish(options_, 1, "a \"host\"").ok());
  std::string seen = Read(page->path());
  ASSERT_EQ(seen.size(), 16384u);
  EXPECT_EQ(seen.substr(0, 8), "KRSTATUS");
  EXPECT_EQ(NumberAt<uint32_t>(seen, 8), 1u);
  EXPECT_THAT(TextOf(seen), HasSubstr(R"("rank":2,"size":4,"local_rank":1)"));
  EXPECT_THAT(TextOf(seen), HasSubstr(R"("host":"a \"host\"")"));
  EXPECT_THAT(TextOf(seen), HasSubstr("\"pid\":" + std::to_string(getpid())));
  for (const CounterDescription& row : DescribeCounters()) {
    page->counters().*row.count = 1000;
    EXPECT_EQ(CounterOf(Read(page->path()), row.name), 1000u);
    page->counters().*row.count = 0;
    EXPECT_EQ(CounterOf(Read(page->path()), row.name), 0u);
  }
}

// Two jobs with one key on one host: the second must not take the pages of the
// first, and a new one removes what dead ones have left.
TEST_F(StatusPageTest, OfAnotherProcessIsLeftAloneWhileThatLives) {
  int go_on[2];
  int made[2];
  ASSERT_EQ(pipe(go_on), 0);
  ASSERT_EQ(pipe(made), 0);
  const pid_t other = fork();
  if (other == 0) {
    auto page = StatusPage::Create(options_).value();
    page->SetError("the first job");
    char byte = 0;
    (void)!write(made[1], "x", 1);
    (void)!read(go_on[0], &byte, 1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(made[0], &byte, 1), 1);
  const std::string job =
      options_.status_directory + "/" + StatusJobName(options_);
  const std::string path = job + "/rank.2." + std::to_string(other) + ".page";
  {
    const auto page = StatusPage::Create(options_).value();
    EXPECT_NE(page->path(), path);
    EXPECT_THAT(Read(path), HasSubstr("the first job"));
  }
  EXPECT_THAT(Read(path), HasSubstr("the first job"));
  ASSERT_EQ(write(go_on[1], "x", 1), 1);
  ASSERT_EQ(waitpid(other, nullptr, 0), other);
  // A later generation keeps what shows why somebody died.
  options_.generation = 1;
  (void)StatusPage::Create(options_).value();
  EXPECT_THAT(Read(path), HasSubstr("the first job"));
  options_.generation = 0;
  (void)StatusPage::Create(options_).value();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  for (int fd : {go_on[0], go_on[1], made[0], made[1]}) close(fd);
}

TEST_F(StatusPageTest, IsForItsUserAlone) {
  const auto page = StatusPage::Create(options_).value();
  struct stat found;
  ASSERT_EQ(stat(page->path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  const std::string job = page->path().substr(0, page->path().rfind('/'));
  ASSERT_EQ(stat(job.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  // The name tells nothing of the key.
  EXPECT_EQ(job.substr(job.rfind('/') + 1).size(), 12u);
}

TEST_F(StatusPageTest, RefusesADirectoryThatOthersCanUse) {
  ASSERT_EQ(chmod(options_.status_directory.c_str(), 0777), 0);
  const auto page = StatusPage::Create(options_);
  ASSERT_FALSE(page.ok());
  EXPECT_THAT(page.status().message(), HasSubstr("KERAS_RING_STATUS_DIR"));
  EXPECT_THAT(page.status().message(), HasSubstr(options_.status_directory));
}

TEST_F(StatusPageTest, RefusesALink) {
  // To a directory that would do by itself.
  ASSERT_TRUE(StatusPage::Create(options_).ok());
  const std::string link = options_.status_directory + "/link";
  ASSERT_EQ(symlink(options_.status_directory.c_str(), link.c_str()), 0);
  options_.status_directory = link;
  EXPECT_FALSE(StatusPage::Create(options_).ok());
}

TEST_F(StatusPageTest, RefusesADirectoryOfSomebodyElse) {
  if (getuid() != 0) {
    options_.status_directory = "/root";
    struct stat found;
    if (stat("/root", &found) != 0) GTEST_SKIP() << "there is no /root";
  } else if (chown(options_.status_directory.c_str(), 1, 1) != 0) {
    ASSERT_EQ(errno, EINVAL);
    // In a sandbox of Bazel, say.
    GTEST_SKIP() << "there is no other user";
  }
  EXPECT_FALSE(StatusPage::Create(options_).ok());
}

TEST_F(StatusPageTest, ThePageOfAKilledRankIsReplaced) {
  auto page = StatusPage::Create(options_).value();
  page->counters().buckets = 7;
  ASSERT_TRUE(page->Publish(options_, 0, "h").ok());
  page->SetError("so that the page stays");
  page.reset();
  page = StatusPage::Create(options_).value();
  ASSERT_TRUE(page->Publish(options_, 0, "h").ok());
  EXPECT_EQ(CounterOf(Read(page->path()), "buckets"), 0u);
}

TEST_F(StatusPageTest, TheNameOfTheJobIsNoDigestOfTheKeyAlone) {
  const std::string raw(32, '\xaa');
  EXPECT_NE(StatusJobName(options_), HexText(Sha256Of(raw), 6));
  EXPECT_EQ(StatusJobName(options_),
            HexText(Sha256Of("keras_ring status page" + raw), 6));
}

// By itself, and with the long command lines of the next test.
TEST_F(StatusPageTest, ShowsItsCommandLine) {
  const auto page = StatusPage::Create(options_).value();
  ASSERT_TRUE(page->Publish(options_, 0, "h").ok());
  const std::string text = TextOf(Read(page->path()));
  const size_t begin = text.find("\"command\":\"") + 11;
  const std::string command = text.substr(begin, text.find("\",\"cwd") - begin);
  EXPECT_THAT(command, HasSubstr("status_page_test"));
  EXPECT_LE(command.size(), 1024u);
  // Of characters of two bytes there are whole ones only.
  EXPECT_EQ(std::count(command.begin(), command.end(), '\xc3'),
            std::count(command.begin(), command.end(), '\xa9'));
}

TEST_F(StatusPageTest, ALongCommandLineIsCutBetweenCharacters) {
  std::string accents;
  for (int i = 0; i < 5000; ++i) accents += "\xc3\xa9";
  for (const std::string start : {"x", "xx"}) {
    const pid_t child = fork();
    if (child == 0) {
      // By which Bazel sees that a test has ended: this one has not.
      unsetenv("TEST_PREMATURE_EXIT_FILE");
      execl("/proc/self/exe", "status_page_test",
            "--gtest_filter=StatusPageTest.ShowsItsCommandLine",
            (start + accents).c_str(), nullptr);
      _exit(1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << start;
  }
}

TEST_F(StatusPageTest, GoesWithTheJob) {
  auto page = StatusPage::Create(options_).value();
  const std::string path = page->path();
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  page.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_NE(access(path.substr(0, path.rfind('/')).c_str(), F_OK), 0);
}

TEST_F(StatusPageTest, OfTheNextGenerationStays) {
  auto page = StatusPage::Create(options_).value();
  ++options_.generation;
  const auto next = StatusPage::Create(options_).value();
  ASSERT_EQ(next->path(), page->path());
  page = nullptr;
  EXPECT_EQ(access(next->path().c_str(), F_OK), 0);
}

TEST_F(StatusPageTest, StaysWithTheErrorOfTheJob) {
  auto page = StatusPage::Create(options_).value();
  ASSERT_TRUE(page->Publish(options_, 0, "h").ok());
  page->SetError("lost rank 3" + std::string(2000, '!'));
  const std::string path = page->path();
  page.reset();
  const std::string seen = Read(path);
  ASSERT_EQ(seen.size(), 16384u);
  EXPECT_EQ(NumberAt<uint32_t>(seen, 12288), 2u);
  EXPECT_EQ(NumberAt<uint32_t>(seen, 12292), 1016u);
  EXPECT_EQ(seen.substr(12296, 12), "lost rank 3!");
}

TEST_F(StatusPageTest, ThereIsNoneIfNoneIsWanted) {
  options_.status_directory = "off";
  const auto page = StatusPage::Create(options_);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(*page, nullptr);
}

}  // namespace
}  // namespace keras_ring
