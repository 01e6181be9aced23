#include "csrc/comm/rendezvous/member_record.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace keras_ring {
namespace {

MemberRecord NewRecord(int rank, int size,
                       std::vector<std::string> fingerprint = {}) {
  MemberRecord record;
  record.rank = rank;
  record.size = size;
  record.target = 1000 + rank;
  record.member.host = "host" + std::to_string(rank);
  record.member.pid = 100 + rank;
  record.fingerprint = std::move(fingerprint);
  return record;
}

TEST(MemberRecord, ComesBack) {
  MemberRecord record = NewRecord(3, 5, {"a=1", "b=", ""});
  record.member.host_id = "id";
  record.member.address = "10.0.0.3";
  record.member.port = 65535;
  record.target = 0xffffffffffffffff;
  MemberRecord read;
  ASSERT_TRUE(Decode(Encode(record), &read));
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.size, 5);
  EXPECT_EQ(read.member.host_id, "id");
  EXPECT_EQ(read.member.host, "host3");
  EXPECT_EQ(read.member.address, "10.0.0.3");
  EXPECT_EQ(read.member.port, 65535);
  EXPECT_EQ(read.member.pid, 103);
  EXPECT_EQ(read.target, record.target);
  EXPECT_EQ(read.fingerprint, record.fingerprint);
}

// As the ranks of process sets of a large job.
TEST(MemberRecord, LongPropertiesAreComparedByTheirDigests) {
  const std::string sets = "process_sets=" + std::string(1 << 20, '1');
  std::vector<MemberRecord> records(3);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string bytes =
        Encode(NewRecord(rank, 3, {sets + (rank == 2 ? "2" : "")}));
    EXPECT_LT(bytes.size(), 5000u);
    ASSERT_TRUE(Decode(bytes, &records[rank]));
  }
  EXPECT_TRUE(CompareFingerprints({records[0], records[1]}).ok());
  const Status status = CompareFingerprints(records);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("'process_sets': ranks 0-1 have '111"),
            std::string::npos);
}

TEST(JobTable, ComesBack) {
  JobTable table = MakeTable({NewRecord(0, 2), NewRecord(1, 2)});
  table.time_left = std::chrono::milliseconds(59'999);
  JobTable read;
  ASSERT_TRUE(Decode(Encode(table), &read));
  EXPECT_TRUE(read.status.ok());
  ASSERT_EQ(read.members.size(), 2u);
  EXPECT_EQ(read.members[1].host, "host1");
  EXPECT_EQ(read.targets, (std::vector<uint64_t>{1000, 1001}));
  EXPECT_EQ(read.time_left, table.time_left);

  JobTable failed;
  failed.status = FailedPreconditionError("why not");
  ASSERT_TRUE(Decode(Encode(failed), &read));
  EXPECT_EQ(read.status, failed.status);
  EXPECT_TRUE(read.members.empty());
}

TEST(MemberRecord, TruncatedAndRandomBytesAreRefused) {
  const std::string record = Encode(NewRecord(3, 5, {"a=1"}));
  const std::string table = Encode(MakeTable({NewRecord(0, 1)}));
  MemberRecord read;
  JobTable read_table;
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(Decode(record.substr(0, size), &read)) << size;
  }
  for (size_t size = 0; size < table.size(); ++size) {
    EXPECT_FALSE(Decode(table.substr(0, size), &read_table)) << size;
  }
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes(random() % 60, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 16);
    (void)Decode(bytes, &read);
    (void)Decode(bytes, &read_table);
  }
}

TEST(JobTable, ATimeThatNoDurationHoldsIsRefused) {
  JobTable table;
  table.time_left = std::chrono::hours(24 * 365);
  JobTable read;
  EXPECT_TRUE(Decode(Encode(table), &read));
  table.time_left = std::chrono::hours(24 * 365 * 100);
  EXPECT_FALSE(Decode(Encode(table), &read));
}

// Else it would stand in the table in another rank's place.
TEST(MemberRecord, RanksOutsideTheJobAreRefused) {
  MemberRecord read;
  EXPECT_TRUE(Decode(Encode(NewRecord(4, 5)), &read));
  EXPECT_FALSE(Decode(Encode(NewRecord(5, 5)), &read));
  EXPECT_FALSE(Decode(Encode(NewRecord(0, 0)), &read));
}

TEST(JobTable, AnUnknownErrorIsAnError) {
  JobTable failed;
  failed.status = Status(static_cast<StatusCode>(99), "why not");
  JobTable read;
  ASSERT_TRUE(Decode(Encode(failed), &read));
  EXPECT_EQ(read.status, InternalError("why not"));
}

// What the ranks of a host have in common is sent once.
TEST(JobTable, OfALargeJobIsSmall) {
  JobTable table;
  for (int rank = 0; rank < 4096; ++rank) {
    Member member;
    member.host_id = std::string(60, 'a') + std::to_string(rank / 8);
    member.host = "node" + std::to_string(rank / 8);
    member.address = "10.1.2." + std::to_string(rank / 8);
    member.port = static_cast<uint16_t>(40000 + rank);
    member.pid = 1000000 + rank;
    table.members.push_back(member);
    table.targets.push_back(rank);
  }
  const std::string bytes = Encode(table);
  EXPECT_LT(bytes.size(), 4096 * 20 + 512 * 90u);
  JobTable read;
  ASSERT_TRUE(Decode(bytes, &read));
  ASSERT_EQ(read.members.size(), 4096u);
  EXPECT_EQ(read.members[4095].host, "node511");
  EXPECT_EQ(read.members[4095].host_id, table.members[4095].host_id);
  EXPECT_EQ(read.members[8].address, "10.1.2.1");
  EXPECT_EQ(read.targets[77], 77u);
}

std::string Key(int number) { return kMemberPrefix + std::to_string(number); }

// The first error of these records, which come one after the other.
Status AddAll(MemberRecords& records, const std::vector<MemberRecord>& all) {
  int number = 0;
  for (const MemberRecord& record : all) {
    KR_RETURN_IF_ERROR(records.Add(Key(number++), Encode(record)));
  }
  return OkStatus();
}

TEST(MemberRecords, AreCompleteWhenAllHaveCome) {
  MemberRecords records(3);
  ASSERT_TRUE(AddAll(records, {NewRecord(2, 3), NewRecord(0, 3)}).ok());
  EXPECT_FALSE(records.complete());
  ASSERT_TRUE(records.Add("join/1", Encode(NewRecord(1, 3))).ok());
  ASSERT_TRUE(records.complete());
  const std::vector<MemberRecord> all = records.Take();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all[rank].rank, rank);
}

TEST(MemberRecords, OneThatLeftMayComeAgain) {
  MemberRecords records(2);
  ASSERT_TRUE(AddAll(records, {NewRecord(0, 2), NewRecord(1, 2)}).ok());
  records.Remove(Key(1));
  records.Remove("join/unknown");
  EXPECT_FALSE(records.complete());
  EXPECT_TRUE(records.Add("join/9", Encode(NewRecord(1, 2))).ok());
  EXPECT_TRUE(records.complete());
}

TEST(MemberRecords, GarbageIsAnError) {
  MemberRecords records(2);
  EXPECT_EQ(records.Add("join/1", "\xff").code(), StatusCode::kInternal);
}

TEST(MemberRecords, NamesTwoProcessesWithOneRank) {
  MemberRecord other = NewRecord(1, 3);
  other.member.host = "elsewhere";
  MemberRecords records(3);
  const Status status =
      AddAll(records, {NewRecord(0, 3), NewRecord(1, 3), std::move(other)});
  EXPECT_EQ(status, InvalidArgumentError(
                        "two processes have rank 1: process 101 on host1 and "
                        "process 101 on elsewhere"));
}

TEST(MemberRecords, NamesADifferentSize) {
  MemberRecords records(3);
  const Status status = AddAll(records, {NewRecord(0, 3), NewRecord(1, 4)});
  EXPECT_EQ(status, InvalidArgumentError(
                        "the ranks differ in the size of the job: rank 0 has "
                        "3, rank 1 (process 101 on host1) has 4"));
}

TEST(CompareFingerprints, NamesRanksAndValues) {
  EXPECT_TRUE(CompareFingerprints({NewRecord(0, 2, {"tf=2.21", "np=1"}),
                                   NewRecord(1, 2, {"np=1", "tf=2.21"})})
                  .ok());
  Status status = CompareFingerprints({
      NewRecord(0, 4, {"tf=2.21", "cap=10"}),
      NewRecord(1, 4, {"tf=2.20", "cap=10"}),
      NewRecord(2, 4, {"tf=2.20", "cap=11"}),
      NewRecord(3, 4, {"tf=2.21"}),
  });
  EXPECT_EQ(status,
            FailedPreconditionError(
                "the ranks differ in 'cap': ranks 0-1 have '10', rank 2 has "
                "'11', rank 3 has '(none)'; 'tf': ranks 0, 3 have '2.21', "
                "ranks 1-2 have '2.20'"));
}

TEST(MemberRecords, NamesThoseThatAreMissing) {
  MemberRecords records(6);
  ASSERT_TRUE(AddAll(records, {NewRecord(0, 6), NewRecord(2, 6)}).ok());
  EXPECT_EQ(records.Missing(),
            DeadlineExceededError("ranks 1, 3-5 of 6 did not join in time "
                                  "(ranks 0, 2 did)"));
}

TEST(RankNames, JoinsNeighbours) {
  EXPECT_EQ(RankNames({3}), "rank 3");
  EXPECT_EQ(RankNames({2, 0, 1}), "ranks 0-2");
  EXPECT_EQ(RankNames({5, 0, 2, 3, 9}), "ranks 0, 2-3, 5, 9");
}

}  // namespace
}  // namespace keras_ring
