// Writes the seeds of the corpus: a few valid inputs for each target, made by
// the code that sends such bytes. To be run when a format has changed:
//
//   make fuzz-corpus
//
// What the fuzzer has found keeps its own name beside them.
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/options.h"
#include "csrc/base/wire.h"
#include "csrc/comm/net/frame.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/membership.h"
#include "csrc/comm/store/store_message.h"
#include "csrc/comm/transport/data_header.h"
#include "csrc/control/controller.h"
#include "tests/fuzz/controller_script.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

namespace fs = std::filesystem;

// "target/seed-name" -> its bytes.
using Corpus = std::map<std::string, std::string>;

void AddWire(Corpus& corpus) {
  WireWriter writer;
  writer.Byte(7);
  writer.Fixed32(1u << 31);
  writer.Fixed64(~uint64_t{0});
  writer.Double(0.5);
  writer.Varint(300);
  writer.SignedVarint(-3);
  writer.Text("text");
  writer.Varint(2);
  writer.Raw("sixsix");
  ScriptWriter script;
  script.Text(std::string("\0\1\2\3\4\5\6\7", 8)).Rest(writer.bytes());
  corpus["wire/seed-all"] = script.bytes();
  WireWriter overlong;
  overlong.Varint(~uint64_t{0});
  corpus["wire/seed-longest-varint"] =
      ScriptWriter().Text("\4").Rest(overlong.bytes()).bytes();
}

std::string Framed(const std::vector<std::string>& frames) {
  std::string stream;
  for (const std::string& frame : frames) {
    char prefix[10];
    stream.append(prefix, EncodeFrameLength(frame.size(), prefix));
    stream += frame;
  }
  return stream;
}

void AddFrames(Corpus& corpus) {
  const std::string stream =
      Framed({"", "one", std::string(127, 'x'), std::string(300, 'y')});
  corpus["frame/seed-whole"] = ScriptWriter().Text("").Rest(stream).bytes();
  corpus["frame/seed-pieces"] =
      ScriptWriter().Text("\1\1\2\x40\x80\x05").Rest(stream).bytes();
  corpus["frame/seed-too-long"] =
      ScriptWriter().Text("").Rest(Framed({std::string(301, 'z')})).bytes();
}

// By the rank that makes them.
std::vector<RequestPtr> Requests(int rank) { return ScriptRequests(rank); }

void AddRequests(Corpus& corpus) {
  const size_t kinds = Requests(0).size();
  for (size_t i = 0; i < kinds; ++i) {
    WireWriter alone;
    Requests(3)[i]->Encode(alone);
    WireWriter all;
    for (int rank = 0; rank < 6; ++rank) {
      Request request = *Requests(rank)[i];
      // As many splits as there are ranks, which bring six rows.
      request.Encode(all);
    }
    const std::string name = Requests(0)[i]->name;
    corpus["request/seed-alone-" + name] = alone.bytes();
    corpus["request/seed-all-" + name] = all.bytes();
  }
}

std::vector<std::pair<std::string, Message>> Messages() {
  const std::vector<RequestPtr> own = Requests(1);
  ReadyMessage ready;
  ready.sequence = 300;
  ready.last = {2, std::chrono::milliseconds(4)};
  ready.slots = {0, 1, 2, 9, 10, 5000};
  for (const RequestPtr& request : own) {
    ready.uncached.push_back(
        {VariantOf(*request, {0, 2}), VariantOf(*request, {1})});
  }
  WaitingMessage waiting;
  waiting.sequence = 299;
  waiting.waiting = {{"allreduce 'w'",
                      "w",
                      {0, 3},
                      std::chrono::seconds(70),
                      std::chrono::milliseconds(3)}};
  ExecuteDecision execute;
  execute.slots = {4, 5};
  execute.last = {1, std::chrono::microseconds(70)};
  for (const RequestPtr& request : own) {
    std::vector<RequestVariant> variants;
    for (int rank = 0; rank < kScriptSize; ++rank) {
      for (const RequestPtr& made : Requests(rank)) {
        if (made->name != request->name) continue;
        AddVariant(variants, VariantOf(*made, {rank}));
      }
    }
    Result<Response> agreed = Agree(variants, kScriptSize);
    if (!agreed.ok()) continue;
    execute.uncached.push_back(
        std::make_shared<const Response>(std::move(agreed).value()));
  }
  const DecisionMessage rest = {
      {FailDecision{{"a", "b"}, FailedPreconditionError("they differ")},
       PlanDecision{{{3, 4, 9}, {7}}}, EndDecision{UnavailableError("over")},
       JoinDecision{{0, 2}}, TuneDecision{Tunable::kLinger, 5000},
       ReconfigureDecision{2}}};
  return {{"ready", ready},
          {"waiting", waiting},
          {"leave", LeaveMessage{3, "ValueError: no"}},
          {"execute", DecisionMessage{{execute}}},
          {"fail-plan-end", rest},
          {"abort", AbortMessage{UnavailableError("lost rank 2")}},
          {"ping", PingMessage{}},
          {"clock_query", ClockQuery{123456789}},
          {"clock_reply", ClockReply{5, 6, true, -7, 9}},
          {"join", JoinMessage{{1, 3}}},
          {"bye", ByeMessage{}},
          {"ask", StallQuery{7, {1, 3}, {"dense/kernel"}}},
          {"doing", ActivityReply{7, 3, {"waits", {"loss"}, {true}}}}};
}

void AddMessages(Corpus& corpus) {
  for (const auto& [name, message] : Messages()) {
    corpus["message/seed-" + name] = ScriptWriter()
                                         .Byte(kScriptSize - 1)
                                         .Rest(EncodeMessage(message))
                                         .bytes();
  }
  auto add = [&corpus](const std::string& name, const DecisionMessage& what) {
    corpus["message/seed-" + name] =
        ScriptWriter().Byte(kScriptSize - 1).Rest(EncodeMessage(what)).bytes();
  };
  // Numbers that overflow when they are multiplied or added.
  DecisionMessage rows;
  auto agreed = std::make_shared<Response>();
  agreed->request = *Requests(0)[3];
  agreed->request.tensors[0].shape = {0, int64_t{1} << 40};
  agreed->rows.assign(kScriptSize, int64_t{1} << 57);
  rows.decisions = {ExecuteDecision{{}, {agreed}, {}}};
  add("overflowing-rows", rows);
}

// A whole job, of which what happens to one rank is written down.
class Recording {
 public:
  Recording(int place, int capacity) : rank_(kScriptPlaces[place]) {
    script_.Byte(place).Byte(capacity);
    for (int rank = 0; rank < kScriptSize; ++rank) {
      counters_.push_back(std::make_unique<Counters>());
      controllers_.push_back(std::make_unique<Controller>(
          ScriptTree(rank), ScriptOptions(kScriptCacheCapacities[capacity]),
          clock_, *counters_.back()));
    }
    unexecuted_.resize(kScriptSize);
  }

  // All ranks ask for these, and what follows happens.
  void Run(const std::vector<int>& requests) {
    for (int rank = 0; rank < kScriptSize; ++rank) {
      for (int request : requests) Submit(rank, request);
    }
    Settle();
  }

  void Submit(int rank, int request) {
    Note(rank, ScriptStep::kSubmit, [&] { script_.Byte(request); });
    controllers_[rank]->Submit(Requests(rank)[request]);
    Collect(rank);
  }

  void Join(int rank) {
    Settle();
    Note(rank, ScriptStep::kJoin, [] {});
    auto request = std::make_shared<Request>();
    request->name = "join";
    request->kind = RequestKind::kJoin;
    controllers_[rank]->Submit(request);
    Collect(rank);
    Settle();
  }

  void Timer(int tenths) {
    clock_.Advance(tenths * std::chrono::milliseconds(100));
    for (int rank = kScriptSize - 1; rank >= 0; --rank) {
      Note(rank, ScriptStep::kTimer, [&] { script_.Byte(tenths); });
      controllers_[rank]->OnTimer();
      Collect(rank);
    }
    Settle();
  }

  void Leave(int rank) {
    Note(rank, ScriptStep::kLeave, [&] { script_.Text("its end"); });
    controllers_[rank]->Leave("its end");
    Collect(rank);
    Settle();
  }

  const std::string& bytes() const { return script_.bytes(); }

 private:
  void Note(int rank, ScriptStep step, const std::function<void()>& rest) {
    if (rank != rank_) return;
    script_.Byte(static_cast<int>(step));
    rest();
  }

  void Collect(int rank) {
    Controller::Output output = controllers_[rank]->Take();
    for (auto& [peer, message] : output.messages) {
      links_.push_back({rank, peer, std::move(message)});
    }
    for (const Command& command : output.commands) {
      unexecuted_[rank] += std::holds_alternative<ExecuteCommand>(command);
    }
  }

  void Settle() {
    for (bool busy = true; busy;) {
      busy = false;
      while (!links_.empty()) {
        const Sent sent = std::move(links_.front());
        links_.pop_front();
        Note(sent.to, ScriptStep::kMessage,
             [&] { script_.Byte(sent.from + 1).Text(sent.bytes); });
        const Status status =
            controllers_[sent.to]->OnMessage(sent.from, sent.bytes);
        KR_CHECK(status.ok());
        Collect(sent.to);
        busy = true;
      }
      for (int rank = 0; rank < kScriptSize; ++rank) {
        if (unexecuted_[rank] == 0) continue;
        --unexecuted_[rank];
        Note(rank, ScriptStep::kExecuted, [] {});
        controllers_[rank]->OnLaunched(1);
        Collect(rank);
        busy = true;
      }
    }
  }

  struct Sent {
    int from;
    int to;
    std::string bytes;
  };

  const int rank_;
  ScriptWriter script_;
  ManualClock clock_;
  std::vector<std::unique_ptr<Counters>> counters_;
  std::vector<std::unique_ptr<Controller>> controllers_;
  std::deque<Sent> links_;
  std::vector<int> unexecuted_;
};

void AddControllers(Corpus& corpus) {
  for (int place = 0; place < kNumScriptPlaces; ++place) {
    const std::string prefix = "controller/seed-" + std::to_string(place) + "-";
    for (int capacity = 0; capacity < kNumScriptCacheCapacities; ++capacity) {
      Recording all(place, capacity);
      for (int round = 0; round < 2; ++round) all.Run({0, 1, 2, 3, 4, 5, 6, 7});
      all.Run({8});  // fails
      all.Leave(3);
      corpus[prefix + "all-" + std::to_string(capacity)] = all.bytes();
    }
    Recording planned(place, 0);
    for (int step = 0; step < 8; ++step) planned.Run({0, 1, 2});
    corpus[prefix + "plan"] = planned.bytes();
    Recording joined(place, 0);
    joined.Run({0, 3});
    for (int rank : {5, 2, 0}) {
      joined.Join(rank);
      for (int other : {1, 3, 4}) joined.Submit(other, rank % 4);
    }
    for (int rank : {1, 3, 4}) joined.Join(rank);
    joined.Run({0, 1});
    corpus[prefix + "join"] = joined.bytes();
    // Every rank but the last asks; the others wait until that is an error.
    Recording stalled(place, 0);
    stalled.Run({0});
    for (int rank = 0; rank + 1 < kScriptSize; ++rank) stalled.Submit(rank, 0);
    stalled.Submit(kScriptSize - 1, 1);
    for (int tenths : {11, 21, 80}) stalled.Timer(tenths);
    stalled.Run({2});
    corpus[prefix + "stall"] = stalled.bytes();
  }
}

void AddHandshakes(Corpus& corpus) {
  std::string opening("KRNG");
  opening += static_cast<char>(kWireProtocolVersion);
  opening.resize(kClientOpeningBytes, '\0');
  corpus["handshake/seed-attacker"] =
      ScriptWriter()
          .Byte(0)
          .Text(opening)
          .Rest(std::string(kClientProofBytes, 'p'))
          .bytes();
  corpus["handshake/seed-http"] =
      ScriptWriter().Byte(0).Text("GET").Rest(" / HTTP/1.1\r\n").bytes();
  for (int verdict = 0; verdict < kNumVerdicts; ++verdict) {
    // The kind of the link, the rank and other numbers, little-endian.
    std::string hello(kHelloBytes, '\0');
    hello[0] = static_cast<char>((verdict + 1) % kNumLinkKinds);
    hello[1] = static_cast<char>(verdict == 0);  // TLS
    hello[4] = 5;
    corpus["handshake/seed-member-" + std::to_string(verdict)] =
        ScriptWriter().Byte(1).Byte(verdict).Text("nonce").Rest(hello).bytes();
  }
  std::string answer = opening;
  answer.resize(kServerProofBytes, 'p');
  corpus["handshake/seed-server"] = ScriptWriter().Byte(2).Rest(answer).bytes();
  answer[4] = static_cast<char>(kWireProtocolVersion + 1);
  corpus["handshake/seed-other-version"] =
      ScriptWriter().Byte(2).Rest(answer).bytes();
  corpus["handshake/seed-key"] =
      ScriptWriter()
          .Byte(3)
          .Rest(std::string(32, 'a') + std::string(32, 'F'))
          .bytes();
}

std::vector<MemberRecord> Records(int size) {
  std::vector<MemberRecord> records;
  for (int rank = 0; rank < size; ++rank) {
    MemberRecord record;
    record.rank = rank;
    record.size = size;
    record.target = 1000 + rank;
    record.member.host_id = "id";
    record.member.host = "host";
    record.member.address = "10.0.0." + std::to_string(rank);
    record.member.port = 4711;
    record.member.pid = 100 + rank;
    record.fingerprint = Options().Fingerprint();
    records.push_back(std::move(record));
  }
  return records;
}

void AddJoinRecords(Corpus& corpus) {
  std::vector<MemberRecord> records = Records(3);
  corpus["member_record/seed-record"] =
      ScriptWriter().Byte(0).Rest(Encode(records[1])).bytes();
  JobTable table = MakeTable(records);
  corpus["member_record/seed-table"] =
      ScriptWriter().Byte(1).Rest(Encode(table)).bytes();
  JobTable failed;
  failed.status = FailedPreconditionError("the ranks differ");
  corpus["member_record/seed-no-job"] =
      ScriptWriter().Byte(1).Rest(Encode(failed)).bytes();
  failed.status = Status(static_cast<StatusCode>(99), "an unknown error");
  corpus["member_record/seed-unknown-error"] =
      ScriptWriter().Byte(1).Rest(Encode(failed)).bytes();
  MemberRecord outside = records[0];
  outside.rank = outside.size;
  corpus["member_record/seed-outside"] =
      ScriptWriter().Byte(0).Rest(Encode(outside)).bytes();
  auto judged = [&](const std::string& name) {
    ScriptWriter script;
    script.Byte(2).Byte(2);
    for (const MemberRecord& record : records) script.Text(Encode(record));
    corpus["member_record/seed-" + name] = script.bytes();
  };
  judged("all");
  records[2].fingerprint.back() += "other";
  judged("differ");
  records[2].rank = 1;
  judged("twice");
  records.pop_back();
  judged("missing");
}

void AddMembership(Corpus& corpus) {
  MemberReport report;
  report.generation = 7;
  report.host = "127.0.0.1";
  report.port = 4711;
  report.cause = "lost rank 1";
  corpus["membership/seed-report"] = EncodeReport(report);
  report.steps = {{"adam", 300, true, true}, {"sgd", 0, false, false}};
  corpus["membership/seed-steps"] = EncodeReport(report);
  report.stand = MemberStand::kJoins;
  corpus["membership/seed-joins"] = EncodeReport(report);
  NextGeneration next;
  next.generation = 8;
  next.admitted = true;
  next.rank = 1;
  next.members = {0, 300, 2};
  next.host = "127.0.0.1";
  next.port = 4711;
  next.settled = {{"adam", 300, StepOutcome::kCommitted},
                  {"sgd", 0, StepOutcome::kDiscarded}};
  corpus["membership/seed-next"] = EncodeNext(next);
  next.rank = static_cast<int32_t>(next.members.size());
  corpus["membership/seed-outside"] = EncodeNext(next);
  corpus["membership/seed-end"] = EncodeEnd("all ranks are lost");
  corpus["membership/seed-over"] = EncodeOver(300, "host b is gone");
  corpus["membership/seed-waiting"] = EncodeWaiting(300);
}

void AddStoreMessages(Corpus& corpus) {
  auto add = [&corpus](const std::string& name, const StoreRequest& request) {
    corpus["store_message/seed-" + name] =
        ScriptWriter().Byte(0).Rest(Encode(request)).bytes();
  };
  add("set", {StoreRequest::Kind::kSet, 1, "join/1/5", "a record", 0});
  add("list", {StoreRequest::Kind::kList, 2, "join/", "", 3});
  add("unset", {StoreRequest::Kind::kUnset, 3, "join/1/5", "started/1", 0});
  for (const StoreEntries& entries :
       {StoreEntries{}, StoreEntries{{"a", "1"}, {"b", ""}}}) {
    corpus["store_message/seed-reply-" + std::to_string(entries.size())] =
        ScriptWriter().Byte(1).Rest(Encode(StoreReply{9, entries})).bytes();
  }
}

void AddDataHeaders(Corpus& corpus) {
  auto add = [&corpus](const std::string& name, uint64_t bytes,
                       const std::string& data) {
    uint8_t header[kDataHeaderBytes];
    EncodeDataHeader({77, bytes}, header);
    corpus["data_header/seed-" + name] =
        ScriptWriter()
            .Number(77)
            .Text(std::string("\3\0\5", 3))
            .Rest({reinterpret_cast<const char*>(header), sizeof(header)})
            .Rest(data)
            .bytes();
  };
  add("whole", 8, "abcdefgh");
  add("cut", 8, "abc");
  add("other-size", kMaxDataBytes, "abcdefgh");
}

void AddLocalLinks(Corpus& corpus) {
  const std::string stream = Framed({"one", "", std::string(200, 'x')});
  ScriptWriter order;
  // The other writes frames, which are read; this rank sends, and the other
  // reads a part of it.
  order.Byte(1).Byte(3).Text(stream).Byte(0).Byte(7);
  order.Byte(0).Byte(5).Number(100).Byte(0).Byte(6);
  order.Byte(0).Byte(5).Number(70000).Byte(0).Byte(1).Number(500);
  order.Byte(0).Byte(6).Byte(0).Byte(8);
  corpus["local_link/seed-order"] = order.bytes();
  ScriptWriter broken;
  broken.Byte(1).Byte(0).Number(uint64_t{1} << 40).Byte(0).Byte(7);
  corpus["local_link/seed-broken-written"] = broken.bytes();
  ScriptWriter room;
  room.Byte(0).Byte(1).Number(~uint64_t{0} / 2);
  room.Byte(0).Byte(5).Number(100000).Byte(0).Byte(6);
  corpus["local_link/seed-broken-read"] = room.bytes();
  ScriptWriter wraps;
  wraps.Byte(1).Byte(0).Number(65500).Byte(1).Byte(1).Number(65500);
  wraps.Byte(1).Byte(3).Text(stream).Byte(0).Byte(7);
  wraps.Byte(0).Byte(4).Byte(1).Byte(2).Byte(0).Byte(8);
  corpus["local_link/seed-wraps"] = wraps.bytes();
}

void AddDirectTensors(Corpus& corpus) {
  auto tensor = [](ScriptWriter& script, int inside, uint64_t input,
                   uint64_t output) {
    script.Byte(inside).Number(100).Number(64).Number(input).Number(output);
  };
  ScriptWriter good;
  tensor(good, 0, 0, 4096);
  tensor(good, 1, 0, 4096);
  tensor(good, 0, ~uint64_t{0}, 64);
  corpus["direct_tensors/seed-good"] = good.bytes();
  ScriptWriter outside;
  tensor(outside, 0, 0, 1 << 16);
  corpus["direct_tensors/seed-outside"] = outside.bytes();
  ScriptWriter wraps;
  tensor(wraps, 0, ~uint64_t{0} - 100, 0);
  corpus["direct_tensors/seed-wraps"] = wraps.bytes();
}

void AddOptions(Corpus& corpus) {
  const std::vector<OptionDescription> variables = DescribeOptions();
  auto variable = [&](ScriptWriter& script, const std::string& name,
                      const std::string& value) {
    for (size_t i = 0; i < variables.size(); ++i) {
      if (variables[i].variable != "KERAS_RING_" + name) continue;
      script.Byte(static_cast<int>(i)).Text(value);
    }
  };
  ScriptWriter defaults;
  for (const OptionDescription& each : variables) {
    variable(defaults, each.variable.substr(std::strlen("KERAS_RING_")),
             each.default_value);
  }
  corpus["options/seed-defaults"] = defaults.bytes();
  ScriptWriter job;
  variable(job, "RANK", "1");
  variable(job, "SIZE", "2");
  variable(job, "RENDEZVOUS", "[::1]:4711");
  variable(job, "JOB_KEY", std::string(64, 'a'));
  variable(job, "CYCLE_TIME", "0.25");
  variable(job, "HEARTBEAT_TIMEOUT", "1e3");
  variable(job, "COLLECTIVE", "ring");
  variable(job, "LOG_LEVEL", "debug");
  corpus["options/seed-job"] = job.bytes();
  ScriptWriter wrong;
  variable(wrong, "RANK", "2");
  variable(wrong, "SIZE", "2");
  corpus["options/seed-wrong-rank"] = wrong.bytes();
  ScriptWriter numbers;
  variable(numbers, "CYCLE_TIME", "-0");
  variable(numbers, "STALL_CHECK_TIME", "60.0000001");
  corpus["options/seed-numbers"] = numbers.bytes();
  ScriptWriter part;
  variable(part, "FUSION_THRESHOLD", std::string("5\0x", 3));
  corpus["options/seed-in-part"] = part.bytes();
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

bool IsSeed(const fs::path& path) {
  return path.filename().string().rfind("seed-", 0) == 0;
}

std::vector<fs::path> SeedsIn(const fs::path& root) {
  std::vector<fs::path> seeds;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (IsSeed(entry.path())) seeds.push_back(entry.path());
  }
  return seeds;
}

int Check(const Corpus& corpus, const fs::path& root) {
  int wrong = 0;
  auto complain = [&wrong](const std::string& name, const char* what) {
    std::fprintf(stderr, "%s %s; run `make fuzz-corpus`\n", name.c_str(), what);
    ++wrong;
  };
  for (const auto& [name, bytes] : corpus) {
    if (!fs::exists(root / name)) {
      complain(name, "is missing");
    } else if (ReadFile(root / name) != bytes) {
      complain(name, "is out of date");
    }
  }
  for (const fs::path& path : SeedsIn(root)) {
    const std::string name = fs::relative(path, root).generic_string();
    if (corpus.count(name) == 0) complain(name, "is made no more");
  }
  return wrong == 0 ? 0 : 1;
}

int Write(const Corpus& corpus, const fs::path& root) {
  fs::create_directories(root);
  for (const fs::path& path : SeedsIn(root)) fs::remove(path);
  for (const auto& [name, bytes] : corpus) {
    fs::create_directories((root / name).parent_path());
    std::ofstream file(root / name, std::ios::binary);
    file << bytes;
    if (!file.flush()) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace keras_ring

int main(int argc, char** argv) {
  using namespace keras_ring;
  const bool check = argc == 3 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 2 && !check) {
    std::fprintf(stderr, "usage: make_corpus [--check] DIRECTORY\n");
    return 2;
  }
  Corpus corpus;
  AddWire(corpus);
  AddFrames(corpus);
  AddRequests(corpus);
  AddMessages(corpus);
  AddControllers(corpus);
  AddHandshakes(corpus);
  AddJoinRecords(corpus);
  AddMembership(corpus);
  AddStoreMessages(corpus);
  AddDataHeaders(corpus);
  AddLocalLinks(corpus);
  AddDirectTensors(corpus);
  AddOptions(corpus);
  return check ? Check(corpus, argv[2]) : Write(corpus, argv[1]);
}
