// SPDX-License-Identifier: Apache-2.0
// Tests the whole network check without MPI: the tasks are threads of this process, and the nodes
// are only names.
#include "ddp_runtime/check/net/run_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/check/net/measure/tcp.h"
#include "tests/unit/check/complaints.h"
#include "tests/unit/check/puppet.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

struct NetResult {
  Verdict verdict;
  std::vector<int> exit_codes;
};

NetOptions options_for(int rank, int size) {
  NetOptions options;
  options.step.rank = rank;
  options.step.size = size;
  for (int i = 0; i < size; ++i) {
    std::string name = "n";
    name += std::to_string(i + 1);
    options.step.nodes.push_back({name, 1});
  }
  options.step.node = options.step.nodes[static_cast<std::size_t>(rank)].name;
  options.step.leader_host = "127.0.0.1";
  options.step.identity = "test";
  options.step.pretended = true;
  options.program = "ddp-check test";
  options.mpi = false;
  options.bytes = 1 << 16;
  options.deadline = std::chrono::seconds(120);
  options.pair_limit = std::chrono::seconds(120);
  options.grace = std::chrono::milliseconds(1000);
  // Speeds of threads that share a few CPUs vary widely, so only nodes below a quarter of the
  // others' speed are slow.
  options.rules.peers = {0.75, 0.75};
  return options;
}

std::uint16_t free_port() {
  return listen_on(0).port;
}

// `change` may modify each task's options.
template <class Change>
NetResult run_all(int size, const Change& change) {
  NetResult run;
  std::mutex mutex;
  const std::uint16_t port = free_port();
  run.exit_codes.assign(static_cast<std::size_t>(size), -1);
  std::vector<std::thread> tasks;
  for (int rank = 0; rank < size; ++rank) {
    tasks.emplace_back([&, rank] {
      NetOptions options = options_for(rank, size);
      options.step.leader_port = port;
      options.publish = [&](const Verdict& verdict) { run.verdict = verdict; };
      change(options);
      const NetOutcome outcome = run_net(options);
      const std::lock_guard lock(mutex);
      run.exit_codes[static_cast<std::size_t>(rank)] = outcome.exit_code;
    });
  }
  for (auto& task : tasks) task.join();
  return run;
}

NetResult run_as_usual(int size) {
  return run_all(size, [](NetOptions&) {});
}

// Uses three nodes, whose speeds are not compared, because the speeds of threads that share two
// CPUs vary widely.
TEST(NetRun, HealthyTasksAllExitWithOk) {
  const NetResult run = run_as_usual(3);
  EXPECT_EQ(run.exit_codes, (std::vector<int>{0, 0, 0})) << text_of(run.verdict);
  EXPECT_THAT(verdict_line(run.verdict), HasSubstr("net OK - 3 nodes, 3 tasks; TCP "));
  EXPECT_EQ(run.verdict.measurements.at("tcp").size(), 3U);
}

TEST(NetRun, AllTasksReportTheBadNode) {
  struct Case {
    const char* fault;
    int tasks;
    std::chrono::milliseconds pair_limit;
    const char* bad;
  };
  constexpr std::chrono::milliseconds kExpires{500};
  for (const auto& [fault, tasks, limit, bad] :
       {Case{"corrupt:n3", 3, std::chrono::seconds(120), "n3\n"},
        Case{"hang:n2", 4, kExpires, "n2\n"},
        Case{"hang:n1", 3, kExpires, "n1\n"}}) {  // the leader's own task
    const NetResult run = run_all(tasks, [fault = fault, limit = limit](NetOptions& options) {
      options.injections = parse_injections({fault});
      options.pair_limit = limit;
    });
    EXPECT_THAT(run.exit_codes, testing::Each(2)) << fault;
    EXPECT_EQ(exclude_list(run.verdict), bad);
  }
}

TEST(NetRun, MissingTaskIsNamedWhenTheDeadlineExpires) {
  const NetResult run = run_all(3, [](NetOptions& options) {
    options.injections = parse_injections({"missing:n2"});
    options.deadline = std::chrono::milliseconds(300);
  });
  EXPECT_EQ(run.exit_codes, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(exclude_list(run.verdict), "n2\n");
  EXPECT_EQ(run.verdict.measurements.at("tcp").size(), 1U);  // the remaining pair is still measured
}

// Loopback is no path between nodes, unless the nodes are only names.
TEST(NetRun, PacketSizesOnOneMachineAreNotJudged) {
  for (const bool pretended : {true, false}) {
    const NetResult run =
        run_all(2, [pretended](NetOptions& options) { options.step.pretended = pretended; });
    const auto& all = run.verdict.findings.all();
    EXPECT_EQ(std::count_if(all.begin(), all.end(),
                            [](const Finding& one) { return one.check == "net.path_mtu"; }),
              pretended ? 1 : 0);
  }
}

// Answers the leader until it asks for the traffic, before the first exchange, and dies.
void live_until_the_first_exchange(std::uint16_t port) {
  Puppet task(port, 1, "test", "ddp-check test", "n2");
  while (true) {
    const auto command = task.receive();
    const std::string what = command.value("do", "");
    if (what == "transport") return;
    if (what == "probe_path") task.answer({{"id", command.at("id")}, {"arrived", 0}, {"mtu", 0}});
  }
}

TEST(NetRun, NodeIsNotUnknownBecauseItsPartnerDiedBetweenStages) {
  NetOptions options = options_for(0, 2);
  options.step.leader_port = free_port();
  options.verbs = options.nccl = false;
  std::promise<void> listening;
  std::once_flag once;
  options.progress = [&](const std::string&) {
    std::call_once(once, [&] { listening.set_value(); });
  };
  Verdict verdict;
  options.publish = [&verdict](const Verdict& v) { verdict = v; };
  std::thread leader([&options] { run_net(options); });
  listening.get_future().wait();
  live_until_the_first_exchange(options.step.leader_port);
  leader.join();
  EXPECT_THAT(
      complaints(verdict.findings.all()),
      testing::AllOf(HasSubstr("net.answer n2=CRITICAL"), testing::Not(HasSubstr("UNKNOWN"))));
  EXPECT_EQ(verdict.notes,
            std::vector<std::string>{"TCP was not tested: it can be measured only on n1"});
}

TEST(NetRun, OneNodeIsUnknown) {
  const NetResult run = run_as_usual(1);
  EXPECT_EQ(run.exit_codes, std::vector<int>{3});
  EXPECT_THAT(text_of(run.verdict), HasSubstr("only one node"));
}

TEST(NetRun, LeaderUnreachableByItsNameIsReported) {
  const NetResult run = run_all(2, [](NetOptions& options) {
    options.deadline = std::chrono::milliseconds(1500);
    if (options.step.rank == 0) options.step.leader_host = "name.invalid.";
    options.step.pretended = false;
  });
  EXPECT_EQ(run.exit_codes[0], 2);
  EXPECT_THAT(text_of(run.verdict),
              HasSubstr("CRITICAL MASTER_ADDR=name.invalid. net.leader_address: "));
  EXPECT_THAT(text_of(run.verdict), HasSubstr("MASTER_ADDR is name.invalid.: unset it"));
  EXPECT_EQ(exclude_list(run.verdict), "");
}

TEST(NetRun, TooFewNodesForTheJobAreCritical) {
  const auto run = [](int wanted) {
    return run_all(3, [wanted](NetOptions& options) { options.wanted = wanted; });
  };
  EXPECT_THAT(run(3).exit_codes, testing::Each(0));
  const NetResult few = run(4);
  EXPECT_THAT(few.exit_codes, testing::Each(2));
  EXPECT_THAT(text_of(few.verdict), HasSubstr("CRITICAL net.wanted: 3 nodes, expected 4 nodes: "
                                              "3 given, 0 left out; request more nodes"));
  EXPECT_EQ(exclude_list(few.verdict), "");
}

TEST(NetRun, MissingLeaderIsReportedByEveryTask) {
  NetOptions options = options_for(1, 2);
  options.step.leader_port = free_port();
  options.deadline = std::chrono::milliseconds(300);
  const NetOutcome outcome = run_net(options);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.complaint, HasSubstr("n2 (rank 1) could not report to the leader"));
  EXPECT_THAT(outcome.complaint, HasSubstr("Connection refused"));
}

TEST(NetRun, OtherProgramOnTheLeadersPortIsRejected) {
  const Listener stranger = listen_on(0);  // accepts connections but sends nothing
  NetOptions options = options_for(1, 2);
  options.step.leader_port = stranger.port;
  options.deadline = std::chrono::milliseconds(300);
  EXPECT_THAT(run_net(options).complaint, HasSubstr("is not ddp-check"));
}

TEST(NetRun, PortInUseIsReportedInTheVerdict) {
  const Listener other = listen_on(0);
  NetOptions options = options_for(0, 2);
  options.step.leader_port = other.port;
  Verdict verdict;
  options.publish = [&verdict](const Verdict& v) { verdict = v; };
  EXPECT_EQ(run_net(options).exit_code, 2);
  EXPECT_THAT(verdict_line(verdict), HasSubstr("net.leader_port"));
  EXPECT_THAT(text_of(verdict), HasSubstr("Address already in use"));
}

TEST(NetRun, UnpublishableVerdictIsUnknownForAll) {
  const NetResult run = run_all(2, [](NetOptions& options) {
    options.publish = [](const Verdict&) { throw RuntimeError("disk full"); };
  });
  EXPECT_EQ(run.exit_codes, (std::vector<int>{3, 3}));
}

TEST(NetRun, InjectingIntoAnUnknownNodeIsAUsageError) {
  NetOptions options = options_for(0, 2);
  options.injections = parse_injections({"corrupt:n9"});
  EXPECT_THROW(run_net(options), UsageError);
}

// The options of a task with RDMA ports of a fake ib_write_bw (a script in this directory).
void give_rdma(NetOptions& options, const std::vector<std::string>& ports) {
  options.rdma.program = std::string(SLURM_DDP_SOURCE_DIR) + "/tests/unit/check/fake_ib_write_bw";
  for (const auto& name : ports) options.rdma.ports.push_back({{name, "", {}}});
}

// The findings about RDMA that are not OK.
std::string rdma_complaints(const Verdict& verdict) {
  std::vector<Finding> about;
  for (const auto& finding : verdict.findings.all()) {
    if (finding.check.starts_with("verbs.")) about.push_back(finding);
  }
  return complaints(about);
}

class NetRunOverRdma : public testing::Test {
 protected:
  NetRunOverRdma() {
    setenv("FAKE_RDMA", directory_.path().c_str(), 1);
    setenv("FAKE_RDMA_GBITS", "96", 1);
  }
  ~NetRunOverRdma() override {
    unsetenv("FAKE_FAIL_DEV");
    unsetenv("FAKE_SLOW_DEV");
  }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(NetRunOverRdma, EveryPortIsMeasuredAndNamed) {
  const NetResult run = run_all(3, [](NetOptions& options) {
    give_rdma(options, {"m0:1", "m1:1"});
  });
  EXPECT_EQ(run.exit_codes, (std::vector<int>{0, 0, 0})) << text_of(run.verdict);
  EXPECT_THAT(verdict_line(run.verdict),
              HasSubstr("; RDMA 12 GB/s over each of m0:1 m1:1 (lowest 12 over m0:1)"));
  std::multiset<std::string> rails;
  for (const auto& pair : run.verdict.measurements.at("verbs")) {
    EXPECT_EQ(pair.at("a_via"), pair.at("rail"));
    rails.insert(pair.at("rail"));
  }
  EXPECT_EQ(rails, (std::multiset<std::string>{"m0:1", "m0:1", "m0:1", "m1:1", "m1:1", "m1:1"}));
}

TEST_F(NetRunOverRdma, PortThatIsDeadOnAllNodesIsNamedWithoutANode) {
  setenv("FAKE_FAIL_DEV", "m1", 1);
  const NetResult run = run_all(3, [](NetOptions& options) {
    give_rdma(options, {"m0:1", "m1:1"});
  });
  EXPECT_THAT(run.exit_codes, testing::Each(2));
  EXPECT_THAT(text_of(run.verdict),
              HasSubstr("CRITICAL m1:1 verbs.exchange: failed, expected data in both directions: "
                        "all 3 pairs, so the cause is the network or a setting, not one node"));
  EXPECT_EQ(rdma_complaints(run.verdict), "verbs.exchange m1:1=CRITICAL");
  EXPECT_EQ(exclude_list(run.verdict), "");
}

// The third node's port has another name.
TEST_F(NetRunOverRdma, PortThatIsDeadOnOneNodeIsNamedWithTheNode) {
  setenv("FAKE_FAIL_DEV", "odd", 1);
  const NetResult run = run_all(4, [](NetOptions& options) {
    give_rdma(options, {"m0:1", options.step.rank == 2 ? "odd:1" : "m1:1"});
  });
  EXPECT_THAT(run.exit_codes, testing::Each(2));
  EXPECT_THAT(rdma_complaints(run.verdict),
              HasSubstr("verbs.exchange n3/odd:1=CRITICAL, verbs.send n3/odd:1=UNKNOWN"));
  EXPECT_EQ(exclude_list(run.verdict), "n3\n");
  EXPECT_THAT(run.verdict.notes,
              testing::Contains("compute ports have other names on n3: m1:1 is odd:1"));
}

TEST_F(NetRunOverRdma, NodeWithFewerPortsIsNamedAndItsPortsAreMeasured) {
  const NetResult run = run_all(3, [](NetOptions& options) {
    give_rdma(options, options.step.rank == 1 ? std::vector<std::string>{"m1:1"}
                                              : std::vector<std::string>{"m0:1", "m1:1"});
    if (options.step.rank == 1) options.rdma.untested = "m0:1: iWARP";
  });
  EXPECT_EQ(rdma_complaints(run.verdict), "verbs.ports n2=CRITICAL");
  EXPECT_THAT(text_of(run.verdict), HasSubstr("without m0:1; m0:1: iWARP; see"));
  EXPECT_THAT(run.verdict.notes, testing::Contains("RDMA was not tested on n2: m0:1: iWARP"));
  EXPECT_EQ(run.verdict.measurements.at("verbs").size(), 4U);
}

// A port is measured between nodes that both have it, whatever partners the plan of all nodes gives
// them.
TEST_F(NetRunOverRdma, NodeIsNotUnknownBecauseItsPartnersLackAPort) {
  const NetResult two = run_all(2, [](NetOptions& options) {
    give_rdma(options, {"m0:1"});
    if (options.step.rank == 0) options.rdma.ports.push_back({{"m1:1", "", {}}});
  });
  EXPECT_EQ(rdma_complaints(two.verdict), "verbs.ports n2=WARNING");
  EXPECT_EQ(two.verdict.notes, std::vector<std::string>{
                                   "RDMA over m1:1 was not tested: it can be measured only on n1"});
  EXPECT_EQ(two.verdict.measurements.at("verbs").size(), 1U);
  const NetResult kinds = run_all(6, [](NetOptions& options) {
    options.rounds = 1;
    give_rdma(options, {"m0:1"});
    if (options.step.rank < 4) options.rdma.ports.push_back({{"m1:1", "", {}}});
  });
  EXPECT_EQ(rdma_complaints(kinds.verdict), "verbs.ports n5=WARNING, verbs.ports n6=WARNING");
  const auto& pairs = kinds.verdict.measurements.at("verbs");
  EXPECT_EQ(std::count_if(pairs.begin(), pairs.end(),
                          [](const auto& pair) { return pair.at("rail") == "m1:1"; }),
            2);
}

TEST_F(NetRunOverRdma, EachOfSeveralPortsHasFewRoundsAndASinglePortAllPairs) {
  for (const bool several : {true, false}) {
    const NetResult run = run_all(6, [several](NetOptions& options) {
      give_rdma(options, {"m0:1"});
      if (several) options.rdma.ports.push_back({{"m1:1", "", {}}});
    });
    EXPECT_EQ(run.verdict.measurements.at("verbs").size(), several ? 2U * 9U : 15U);
  }
}

TEST_F(NetRunOverRdma, PortsWithOtherRatesAreNotComparedWithEachOther) {
  const NetResult run = run_all(3, [](NetOptions& options) {
    give_rdma(options, {"m0:1"});
    options.rdma.ports.front().port.bytes_per_second = options.step.rank == 1 ? 25e9 : 5e10;
  });
  std::string slower;
  for (const auto& finding : run.verdict.findings.all()) {
    if (finding.check == "verbs.slower_links") slower += finding.evidence;
  }
  EXPECT_EQ(slower, "n2");
}

TEST_F(NetRunOverRdma, PortThatIsSlowOnAllNodesIsNamed) {
  setenv("FAKE_SLOW_DEV", "m2", 1);
  const NetResult run = run_all(2, [](NetOptions& options) {
    give_rdma(options, {"m0:1", "m1:1", "m2:1"});
  });
  EXPECT_EQ(rdma_complaints(run.verdict), "verbs.rail m2:1=WARNING");
}

TEST_F(NetRunOverRdma, MissingToolChangesTheVerdictOnlyIfItIsRequired) {
  for (const bool required : {false, true}) {
    const NetResult run = run_all(2, [required](NetOptions& options) {
      give_rdma(options, {"m0:1"});
      options.rdma.program = "no_such_tool";
      if (required) options.missing_tool = Severity::unknown;
    });
    EXPECT_THAT(run.exit_codes, testing::Each(required ? 3 : 0)) << text_of(run.verdict);
    EXPECT_EQ(run.verdict.notes.empty(), required);
  }
}

// Acts like a leader but does not have the key.
void pretend_to_lead(const Listener& listener) {
  while (auto socket = accept_until(listener, Clock::now() + std::chrono::seconds(2))) {
    const Deadline end = Clock::now() + std::chrono::seconds(120);
    ControlChannel channel(std::move(*socket));
    try {
      channel.receive(end);
      channel.send({{"nonce", random_nonce()}, {"proof", std::string(64, '0')}}, end);
      channel.send({{"welcome", 1}}, end);
      channel.send({{"do", "verdict"}, {"exit_code", 0}}, end);
    } catch (const NetError&) {
      continue;  // the task has disconnected
    }
  }
}

TEST(NetRun, FalseLeaderGivesNoVerdict) {
  const Listener listener = listen_on(0);
  std::thread liar([&listener] { pretend_to_lead(listener); });
  const comm::StepSecret secret(comm::KeySource::file, random_key());
  EXPECT_EQ(error_of([&] { Puppet(listener.port, 1, "test", "ddp-check test", "", secret); }),
            "the answering process does not have the key of this step");
  NetOptions options = options_for(1, 2);
  options.step.leader_port = listener.port;
  options.deadline = std::chrono::milliseconds(500);
  options.secret = secret;
  EXPECT_EQ(run_net(options).exit_code, 2);
  liar.join();
}

TEST(NetRun, TasksThatShareASecretAllExitWithOk) {
  const comm::StepSecret secret(comm::KeySource::file, random_key());
  const NetResult run = run_all(2, [&secret](NetOptions& options) { options.secret = secret; });
  EXPECT_EQ(run.exit_codes, (std::vector<int>{0, 0})) << text_of(run.verdict);
}

}  // namespace
}  // namespace ddp::check
