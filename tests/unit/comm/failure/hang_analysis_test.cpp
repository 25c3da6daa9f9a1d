// SPDX-License-Identifier: Apache-2.0
// Tests the search for the cause of a hang in tables of rank statuses, and status requests over
// TCP.
#include "ddp_runtime/comm/failure/hang_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/channel/connection.h"
#include "base/errors.h"
#include "ddp_runtime/comm/failure/error_channel.h"
#include "ddp_runtime/comm/failure/hub.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/transport/in_process_transport.h"
#include "tests/unit/comm/failure/channel_peers.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kBucket = "all_reduce: sum of 1024 float32";

RankStatus waiting(int rank, std::uint64_t number, const std::string& signature = kBucket) {
  RankSnapshot snapshot;
  snapshot.collectives_begun[kMainChannel] = number + 1;
  const auto what = signature.substr(0, signature.find(':')) + " #" + std::to_string(number);
  snapshot.recent.push_back({kMainChannel, number, what, signature, 30, std::nullopt, false});
  return {rank, "node" + std::to_string(rank), snapshot};
}

RankStatus idle_after(int rank, std::uint64_t number, const std::string& phase = {}) {
  RankSnapshot snapshot;
  snapshot.collectives_begun[kMainChannel] = number + 1;
  snapshot.phase = phase;
  snapshot.phase_ago = 29;
  const auto what = "all_reduce #" + std::to_string(number);
  snapshot.recent.push_back({kMainChannel, number, what, kBucket, 31, 1.0, false});
  return {rank, "node" + std::to_string(rank), snapshot};
}

RankStatus silent(int rank) {
  return {rank, "node" + std::to_string(rank), std::nullopt};
}

const Failure kComplaint{.rank = 0,
                         .text = "rank 0 waited 30 s in all_reduce #17 for rank 1",
                         .symptom = Symptom::long_wait};

TEST(HangAnalysis, BlamesTheRankOutsideCollectives) {
  // In a ring of four ranks, rank 0 waits for rank 3, and rank 3 for rank 2, which is computing.
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17), idle_after(2, 16, "forward"),
                                      waiting(3, 17)};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_TRUE(failure.lost);
  EXPECT_EQ(failure.text,
            "rank 2 (node2) did not join the collective: it last completed all_reduce #16 30 s ago "
            "and has been at 'forward' for 29 s; rank 0 waited 30 s in all_reduce #17 for rank 1");
}

TEST(HangAnalysis, DoesNotBlameARankInAnEarlierCollective) {
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 16), idle_after(2, 15)};
  EXPECT_EQ(find_cause(ranks, kComplaint).rank, 2);
}

TEST(HangAnalysis, NamesAllMissingRanks) {
  const std::vector<RankStatus> ranks{waiting(0, 17), idle_after(1, 16), waiting(2, 17),
                                      idle_after(3, 16)};
  EXPECT_THAT(
      find_cause(ranks, kComplaint).text,
      StartsWith(
          "ranks 1 and 3 did not join the collective: rank 1 last completed all_reduce #16"));
  std::vector<RankStatus> many{waiting(0, 17)};
  for (int rank = 1; rank < 70; ++rank) many.push_back(idle_after(rank, 16));
  EXPECT_THAT(find_cause(many, kComplaint).text,
              StartsWith("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 61 more did not join the collective"));
}

TEST(HangAnalysis, SilentRankIsReportedAsStopped) {
  const std::vector<RankStatus> ranks{waiting(0, 17), silent(1), idle_after(2, 16)};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_THAT(failure.text, StartsWith("rank 1 (node1) does not answer: stopped"));
}

TEST(HangAnalysis, NamesAllSilentRanksAndBlamesTheFirst) {
  const std::vector<RankStatus> ranks{waiting(0, 17), silent(1), waiting(2, 17), silent(3)};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 1);
  EXPECT_THAT(failure.text, StartsWith("ranks 1 and 3 do not answer"));
}

TEST(HangAnalysis, BlamesTheNetworkIfAllRanksJoined) {
  const std::vector<RankStatus> in_one{waiting(0, 17), waiting(1, 17)};
  // Rank 1's share of #16 is still in flight, but rank 0's share has arrived.
  const std::vector<RankStatus> one_apart{waiting(0, 17), waiting(1, 16)};
  const std::vector<RankStatus> over_for_one{waiting(0, 17), idle_after(1, 17, "forward")};
  for (const auto& ranks : {in_one, one_apart, over_for_one}) {
    EXPECT_THAT(find_cause(ranks, kComplaint).text, HasSubstr("the network between them"));
  }
}

TEST(HangAnalysis, DifferentCallsWithTheSameNumberDisagree) {
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17, "broadcast: 8 uint8"),
                                      waiting(2, 17)};
  const auto failure = find_disagreement(ranks);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->text, AllOf(HasSubstr("rank 1 (node1) called broadcast #17"),
                                   HasSubstr("ranks 0 and 2 called all_reduce #17")));
  EXPECT_EQ(find_cause(ranks, kComplaint).text, failure->text);
}

TEST(HangAnalysis, BlamesTheRankOtherThanZeroIfTwoDiffer) {
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17, "barrier: nothing")};
  EXPECT_EQ(find_disagreement(ranks)->rank, 1);
}

TEST(HangAnalysis, ComparesFinishedCallsToo) {
  // Rank 1's shorter message was sent and completed, and rank 0 found that it is too short.
  auto sender = idle_after(1, 17);
  sender.snapshot->recent.back().signature = "all_reduce: sum of 8 float32";
  const auto failure = find_disagreement(std::vector<RankStatus>{waiting(0, 17), sender});
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->text, HasSubstr("all_reduce #17 [all_reduce: sum of 8 float32]"));
}

TEST(HangAnalysis, WrongLengthIsNotBlamedOnLateOrSilentRanks) {
  const Failure report{.rank = 0, .text = "length", .symptom = Symptom::wrong_length};
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17), idle_after(2, 16), silent(3)};
  const auto failure = find_cause(ranks, report);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.text, "length");
}

TEST(HangAnalysis, DifferentNumbersDoNotDisagree) {
  // The root of a broadcast may be ahead of ranks that have not received the data.
  const std::vector<RankStatus> ranks{waiting(0, 18, "barrier: nothing"), waiting(1, 17), silent(2),
                                      idle_after(3, 16)};
  EXPECT_FALSE(find_disagreement(ranks));
}

// Makes the rank also wait in a collective of a second channel.
RankStatus also_waiting(RankStatus status, std::uint64_t number,
                        const std::string& signature = "all_gather: 9 float64") {
  status.snapshot->collectives_begun["norm"] = number + 1;
  const auto what =
      "norm " + signature.substr(0, signature.find(':')) + " #" + std::to_string(number);
  status.snapshot->recent.push_back({"norm", number, what, signature, 20, std::nullopt, false});
  return status;
}

RankStatus has_done(RankStatus status, std::uint64_t number) {
  status.snapshot->collectives_begun["norm"] = number + 1;
  status.snapshot->recent.push_back(
      {"norm", number, "norm all_gather #" + std::to_string(number), kBucket, 40, 1.0, false});
  return status;
}

TEST(HangAnalysis, SameNumberInAnotherChannelDoesNotDisagree) {
  const std::vector<RankStatus> ranks{waiting(0, 17), also_waiting(idle_after(1, 16), 17)};
  EXPECT_FALSE(find_disagreement(ranks));
}

TEST(HangAnalysis, ComparesCollectivesOfAChannelToo) {
  const std::vector<RankStatus> ranks{also_waiting(waiting(0, 17), 4),
                                      also_waiting(idle_after(1, 16), 4, "all_gather: 17 float64")};
  const auto failure = find_disagreement(ranks);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 1);
  EXPECT_THAT(failure->text, HasSubstr("norm all_gather #4 [all_gather: 17 float64]"));
}

TEST(HangAnalysis, DoesNotBlameARankThatWaitsInAChannel) {
  // Rank 0 waits for the others in bucket 17. Rank 1 has not reached this bucket, because it waits
  // for rank 2's statistics.
  const std::vector<RankStatus> ranks{has_done(waiting(0, 17), 4),
                                      also_waiting(idle_after(1, 16), 5),
                                      has_done(idle_after(2, 16, "backward"), 4)};
  EXPECT_EQ(find_cause(ranks, kComplaint).rank, 2);
}

TEST(HangAnalysis, NamesARankThatSkippedAChannelCollective) {
  // The model of rank 2 does not have this layer, so only rank 2 has reached the next bucket.
  const std::vector<RankStatus> ranks{also_waiting(idle_after(0, 16), 5),
                                      also_waiting(idle_after(1, 16), 5),
                                      has_done(waiting(2, 17), 4)};
  EXPECT_FALSE(find_disagreement(ranks));
  const auto failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_THAT(failure.text, StartsWith("rank 2 (node2) skipped a collective in which the others "
                                       "wait, and rank 2 waits in all_reduce #17"));
}

// Makes the rank a member of a group of some ranks, in which it has completed collectives before
// `number`, and waits in `number` if `waits`.
RankStatus in_group(RankStatus status, const std::string& group, std::uint64_t number,
                    bool waits = false) {
  status.snapshot->groups.insert(group);
  status.snapshot->collectives_begun[group] = number + (waits ? 1 : 0);
  const auto what = "barrier #" + std::to_string(number) + " of " + group;
  if (waits) {
    status.snapshot->recent.push_back(
        {group, number, what, "barrier: nothing", 20, std::nullopt, false});
  }
  return status;
}

TEST(HangAnalysis, DoesNotMissARankInAGroupOfOthers) {
  // Ranks 0 and 1 wait in their group for rank 2. Rank 3 is not in it.
  const std::vector<RankStatus> ranks{
      in_group(idle_after(0, 9), "A", 4, true), in_group(idle_after(1, 9), "A", 4, true),
      in_group(idle_after(2, 9, "backward"), "A", 4), idle_after(3, 9)};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_THAT(failure.text, StartsWith("rank 2 (node2) did not join barrier #4 of A: it last"));
}

TEST(HangAnalysis, BlamesTheNetworkIfAllMembersOfAGroupJoined) {
  const std::vector<RankStatus> ranks{in_group(idle_after(0, 9), "A", 4, true),
                                      in_group(idle_after(1, 9), "A", 4, true), idle_after(2, 9)};
  EXPECT_THAT(find_cause(ranks, kComplaint).text, HasSubstr("the network between them"));
}

TEST(HangAnalysis, NamesACircleOfWaitsInGroups) {
  // 1 -> 2 -> 3 -> 1, and 0 waits for 1.
  const std::vector<RankStatus> ranks{
      in_group(idle_after(0, 9), "A", 0, true),
      in_group(in_group(in_group(idle_after(1, 9), "A", 0), "B", 1, true), "D", 3),
      in_group(in_group(idle_after(2, 9), "B", 1), "C", 2, true),
      in_group(in_group(idle_after(3, 9), "C", 2), "D", 3, true)};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.kind, FailureKind::absent);
  EXPECT_THAT(failure.text,
              StartsWith("ranks wait for each other in different groups: rank 1 (node1) waits in "
                         "barrier #1 of B for rank 2, rank 2 (node2) waits in barrier #2 of C for "
                         "rank 3, rank 3 (node3) waits in barrier #3 of D for rank 1; "));
  EXPECT_EQ(failure.rank, 1);
}

// A group and all ranks, too.
TEST(HangAnalysis, NamesACircleThroughTheWholeGroup) {
  const std::vector<RankStatus> ranks{in_group(waiting(0, 17), "A", 2),
                                      in_group(idle_after(1, 16), "A", 2, true), waiting(2, 17)};
  EXPECT_THAT(find_cause(ranks, kComplaint).text,
              StartsWith("ranks wait for each other in different groups: rank 0 (node0) waits in "
                         "all_reduce #17 for rank 1, rank 1 (node1) waits in barrier #2 of A for "
                         "rank 0; "));
}

RankStatus with_busy_gpu(int rank, std::uint64_t number, const std::string& phase) {
  RankStatus status = waiting(rank, number);
  status.snapshot->phase = phase;
  status.snapshot->phase_ago = 29;
  status.snapshot->recent.back().on_gpu = OnGpu::held;
  return status;
}

TEST(HangAnalysis, NamesTheRankWhoseGpuIsBusyWithTheProgram) {
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17),
                                      with_busy_gpu(2, 17, "step 5: forward")};
  const Failure failure = find_cause(ranks, kComplaint);
  EXPECT_EQ(failure.rank, 2);
  EXPECT_EQ(failure.kind, FailureKind::absent);
  EXPECT_EQ(failure.text,
            "rank 2 (node2) launched all_reduce #17, but its GPU is still busy with earlier work "
            "of the program, such as a kernel that does not end: it has completed no collective "
            "yet and has been at 'step 5: forward' for 29 s; rank 0 waited 30 s in all_reduce #17 "
            "for rank 1");
  const std::vector<RankStatus> two{waiting(0, 17), with_busy_gpu(1, 17, "a"),
                                    with_busy_gpu(2, 17, "b")};
  EXPECT_THAT(find_cause(two, kComplaint).text,
              StartsWith("ranks 1 and 2 launched all_reduce #17, but their GPUs are still busy"));
  const std::vector<RankStatus> with_absent{waiting(0, 17), with_busy_gpu(1, 17, "a"),
                                            idle_after(2, 16)};
  EXPECT_EQ(find_cause(with_absent, kComplaint).rank, 2);
}

// Rank 2's stream waits for a collective of the group of ranks 2 and 3, which rank 3 has not
// started.
TEST(HangAnalysis, DoesNotBlameAGpuThatWaitsForAnotherGroup) {
  auto waits_for_group = in_group(with_busy_gpu(2, 17, "a"), "A", 4, true);
  waits_for_group.snapshot->recent.back().on_gpu = OnGpu::running;
  auto busy = in_group(with_busy_gpu(3, 17, "b"), "A", 4, true);
  busy.snapshot->recent.back().on_gpu = OnGpu::held;
  const std::vector<RankStatus> ranks{waiting(0, 17), waiting(1, 17), waits_for_group, busy};
  EXPECT_EQ(find_cause(ranks, kComplaint).rank, 3);
}

TEST(HangAnalysis, DoesNotSayThatAllRanksJoinedAMessage) {
  RankStatus receiver = idle_after(0, 16);
  receiver.snapshot->recent.push_back(
      {kMainChannel, std::nullopt, "receive from rank 1", "4 float32", 30, std::nullopt, false});
  const std::vector<RankStatus> ranks{receiver, idle_after(1, 16, "forward")};
  EXPECT_THAT(find_cause(ranks, kComplaint).text,
              AllOf(HasSubstr("the other rank has not called the matching send or receive"),
                    Not(HasSubstr("all ranks joined"))));
}

TEST(HangAnalysis, RemoteErrorIsBlamedOnSilentRanksOnly) {
  const Failure report{.rank = 0, .text = "remote", .symptom = Symptom::remote_error};
  EXPECT_EQ(find_cause(std::vector<RankStatus>{waiting(0, 17), silent(1)}, report).rank, 1);
  const auto failure =
      find_cause(std::vector<RankStatus>{waiting(0, 17), idle_after(1, 16)}, report);
  EXPECT_EQ(failure.rank, 0);
  EXPECT_EQ(failure.kind, FailureKind::network);
  EXPECT_FALSE(failure.lost) << "rank 0 can print it";
  EXPECT_THAT(failure.text, StartsWith("remote; no rank exited or reported an error of its own"));
}

TEST(RankSnapshot, SurvivesSerialization) {
  FlightRecorder log;
  log.set_phase("epoch 1: forward");
  const auto send = log.begin(std::nullopt, "send", "send: 1 uint8");
  log.end(send, false);
  log.set_on_gpu(log.begin(4, "all_reduce #4 (bucket 0)", kBucket), OnGpu::held);
  const RankSnapshot copy =
      snapshot_from_json(nlohmann::json::parse(to_json(log.snapshot()).dump()));
  EXPECT_EQ(copy.begun_in(kMainChannel), 5U);
  EXPECT_EQ(copy.begun_in("norm"), 0U);
  EXPECT_EQ(copy.phase, "epoch 1: forward");
  ASSERT_EQ(copy.recent.size(), 2U);
  EXPECT_EQ(copy.last_completed()->what, "send");
  ASSERT_NE(copy.stuck_in(kMainChannel), nullptr);
  EXPECT_EQ(copy.stuck_in(kMainChannel)->what, "all_reduce #4 (bucket 0)");
  EXPECT_EQ(copy.stuck_in(kMainChannel)->number, 4U);
  EXPECT_EQ(copy.stuck_in(kMainChannel)->on_gpu, OnGpu::held);
  EXPECT_EQ(copy.last_completed()->on_gpu, OnGpu::no);
}

TEST(RankSnapshot, IsStuckInTheFailedOperation) {
  FlightRecorder log;
  const auto barrier = log.begin(0, "barrier #0", "barrier: nothing");
  log.end(barrier, true);
  const auto snapshot = log.snapshot();
  EXPECT_EQ(snapshot.stuck_in(kMainChannel)->what, "barrier #0");
  EXPECT_EQ(snapshot.last_completed(), nullptr);
}

TEST(RankSnapshot, IsStuckInTheFirstFailedOperationNotInQueuedOnes) {
  FlightRecorder log;
  log.end(log.begin(0, "bucket 0", kBucket), false);
  log.end(log.begin(1, "bucket 1", kBucket), true);
  log.end(log.begin(2, "bucket 2", kBucket), true);
  EXPECT_EQ(log.snapshot().stuck_in(kMainChannel)->what, "bucket 1");
}

TEST(RankSnapshot, EndingAnOperationDoesNotAffectOtherChannels) {
  FlightRecorder log;
  const auto bucket = log.begin(0, "bucket", kBucket);
  const auto norm = log.begin(0, "norm", kBucket, "norm");
  log.end(bucket, false);
  const auto snapshot = log.snapshot();
  ASSERT_EQ(snapshot.stuck_in().size(), 1U);
  EXPECT_EQ(snapshot.stuck_in().front()->what, "norm");
  EXPECT_EQ(snapshot.stuck_in().front()->channel, "norm");
  log.end(norm, false);
  EXPECT_TRUE(log.snapshot().stuck_in().empty());
}

TEST(RankSnapshot, KeepsRunningOperationWhileAnotherChannelIsBusy) {
  FlightRecorder log;
  log.begin(0, "the bucket that hangs", kBucket);
  for (std::uint64_t i = 0; i < 100; ++i) log.end(log.begin(i, "norm", kBucket, "norm"), false);
  const auto snapshot = log.snapshot();
  ASSERT_NE(snapshot.stuck_in(kMainChannel), nullptr);
  EXPECT_EQ(snapshot.stuck_in(kMainChannel)->what, "the bucket that hangs");
  EXPECT_LE(snapshot.recent.size(), 32U);
}

TEST(RankSnapshot, AlwaysFitsIntoAMessage) {
  FlightRecorder log;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::string channel(100'000, 'z');
    log.end(log.begin(i, std::string(100'000, 'x'), std::string(100'000, 'y'), channel), false);
  }
  EXPECT_THROW(
      {
        for (int group = 0; group < 1000; ++group) {
          log.add_group(std::to_string(group) + std::string(1000, 'g'));
        }
      },
      UsageError);
  EXPECT_LT(to_json(log.snapshot()).dump().size(), kMaxText);
}

TEST(RankSnapshot, GroupsSurviveSerialization) {
  FlightRecorder log;
  EXPECT_TRUE(log.add_group("A"));
  EXPECT_TRUE(log.add_group("B"));
  EXPECT_FALSE(log.add_group("A"));
  log.begin(6, "barrier #6", "barrier: nothing", "B");
  log.begin(2, "barrier #2", "barrier: nothing");
  const RankSnapshot copy =
      snapshot_from_json(nlohmann::json::parse(to_json(log.snapshot()).dump()));
  EXPECT_EQ(copy.groups, (std::set<std::string>{"A", "B"}));
  EXPECT_EQ(copy.begun_in("A"), 0U);
  EXPECT_EQ(copy.begun_in("B"), 7U);
  EXPECT_EQ(copy.begun_in(kMainChannel), 3U);
}

TEST(RankSnapshot, RejectsMalformedText) {
  for (
      const char* text :
      {"[]", "{}", "null", R"({"collectives_begun": "many"})",
       R"({"collectives_begun": 1, "group_collectives_begun": {}, "phase": "", "phase_ago": 0, "recent": []})",
       R"({"collectives_begun": {"main": "x"}, "group_collectives_begun": {}, "phase": "", "phase_ago": 0, "recent": []})",
       R"({"collectives_begun": {}, "phase": "", "phase_ago": 0, "recent": []})",
       R"({"collectives_begun": {}, "group_collectives_begun": {"a": "x"}, "phase": "", "phase_ago": 0, "recent": []})",
       R"({"collectives_begun": {}, "group_collectives_begun": {}, "phase": "", "phase_ago": 0, "recent": 7})"}) {
    EXPECT_THROW(snapshot_from_json(nlohmann::json::parse(text)), RuntimeError) << text;
  }
}

// Runs `body` on every rank with error channels over TCP.
void with_channels(int ranks, const GroupOptions& options, const std::string& dump,
                   const std::function<void(test::ChannelRank)>& body) {
  test::with_channels(make_in_process_transports(ranks), options, {.dump = dump}, body);
}

GroupOptions limits_of(std::chrono::milliseconds timeout, std::chrono::milliseconds report_after) {
  GroupOptions options;
  options.limits.timeout = timeout;
  options.limits.report_after = report_after;
  return options;
}

TEST(ErrorChannel, OnTimeoutAllRanksNameTheMissingRank) {
  const auto dump = std::filesystem::path(testing::TempDir()) / "diagnosis-dump.json";
  std::filesystem::remove(dump);
  with_channels(4, limits_of(300ms, 10s), dump, [](test::ChannelRank rank) {
    rank.group.barrier("start").wait();
    rank.group.flight_recorder().set_phase("step 5: forward");
    if (rank.group.rank() != 2) {
      EXPECT_THROW(rank.group.barrier("end").wait(), RuntimeError);
    }
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 2);
    EXPECT_THAT(verdict->text,
                AllOf(StartsWith("rank 2 ("), HasSubstr("did not join the collective"),
                      HasSubstr("(start)"), HasSubstr("'step 5: forward'"), HasSubstr("(end)")));
  });
  const auto record = nlohmann::json::parse(std::ifstream(dump));
  EXPECT_EQ(record.at("schema"), "slurm-ddp/failure/1");
  EXPECT_EQ(record.at("rank"), 2);
  EXPECT_EQ(record.at("kind"), "absent");
  EXPECT_FALSE(record.at("node").get<std::string>().empty());
  EXPECT_TRUE(record.at("lost").empty());
  ASSERT_EQ(record.at("ranks").size(), 4U);
  for (const auto& rank : record.at("ranks")) EXPECT_EQ(rank.at("answered"), true);
  EXPECT_THAT(record.at("ranks")[0].at("activity").at("recent").back().at("what"),
              HasSubstr("(end)"));
}

TEST(ErrorChannel, DisagreementIsFoundLongBeforeTheTimeout) {
  with_channels(3, limits_of(1h, 50ms), {}, [](test::ChannelRank rank) {
    float value = 1;
    auto work = rank.group.rank() == 1 ? rank.group.barrier("lost count")
                                       : rank.group.all_reduce(buffer_of(value), ReduceOp::sum);
    EXPECT_THROW(work.wait(), RuntimeError);
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_THAT(verdict->text, HasSubstr("do not call the same collectives"));
    EXPECT_EQ(verdict->rank, 1);
  });
}

TEST(ErrorChannel, SlowWaitReportFindsCallsThatNeverMatch) {
  with_channels(2, limits_of(1h, 50ms), {}, [](test::ChannelRank rank) {
    // Both ranks wait for a message from the other.
    float value = 1;
    auto work = rank.group.broadcast(buffer_of(value), rank.group.rank() == 0 ? 1 : 0);
    EXPECT_THROW(work.wait(), RuntimeError);
    const auto verdict = rank.channel.verdict(10s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 1);
    EXPECT_THAT(verdict->text, HasSubstr("1 float32 from rank 0"));
  });
}

TEST(ErrorChannel, LongWaitIsNotAFailure) {
  with_channels(3, limits_of(1h, 20ms), {}, [](test::ChannelRank rank) {
    if (rank.group.rank() == 1) std::this_thread::sleep_for(300ms);
    rank.group.barrier().wait();
    EXPECT_FALSE(rank.failures.failed());
  });
}

TEST(ErrorChannel, UnresponsiveRankIsNamed) {
  Listener listener = listen_anywhere();
  const std::uint16_t port = listener.port;
  FailureState failures;
  FlightRecorder recorder;
  Hub hub(failures, recorder, std::move(listener), test::channel_key(), 2,
          {.liveness = {.heartbeat = 20ms}});
  auto mute = test::call(port, 1, "nodeX, process 7");
  ASSERT_TRUE(mute);
  ASSERT_TRUE(mute->await(30s)) << "a heartbeat means that the hub has accepted the connection";
  failures.fail(kComplaint);
  const auto verdict = hub.verdict(10s);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_THAT(verdict->text, StartsWith("rank 1 (nodeX, process 7) does not answer"));
}

}  // namespace
}  // namespace ddp::comm
