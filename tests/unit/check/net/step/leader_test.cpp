// SPDX-License-Identifier: Apache-2.0
// Tests the leader of a check against tasks that are slow, vanish or send invalid messages, and
// against other programs that connect to its port.
#include "ddp_runtime/check/net/step/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/check/net/step/command_handler.h"
#include "tests/unit/check/puppet.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

class LeaderOnTheWire : public testing::Test {
 protected:
  LeaderOnTheWire() : listener_(listen_on(0)), port_(listener_.port) {
    step_.identity = "test";
    step_.size = 400;  // on unknown nodes
  }

  Leader& call(
      int expected, std::chrono::milliseconds timeout = std::chrono::seconds(120),
      const Leader::Progress& progress = [](const std::string&) {}) {
    leader_ = std::make_unique<Leader>(std::move(listener_), "ddp-check test", step_, secret_,
                                       std::chrono::milliseconds(1000));
    leader_->roll_call(expected, Clock::now() + timeout, progress);
    return *leader_;
  }

  Listener listener_;
  std::uint16_t port_;
  JobStep step_;
  comm::StepSecret secret_;
  std::unique_ptr<Leader> leader_;
};

TEST_F(LeaderOnTheWire, DoesNotCountStrangers) {
  const FileDescriptor silent =
      connect_to("127.0.0.1", port_, Clock::now() + std::chrono::seconds(120));
  const FileDescriptor babbler =
      connect_to("127.0.0.1", port_, Clock::now() + std::chrono::seconds(120));
  const std::string nonsense = "GET / HTTP/1.1\r\n\r\n";
  send_all(babbler.get(), std::as_bytes(std::span(nonsense)),
           Clock::now() + std::chrono::seconds(120));
  Puppet first(port_, 0);
  EXPECT_EQ(call(1).present().size(), 1U);
}

TEST_F(LeaderOnTheWire, RejectsForeignAndDuplicateTasksWithTheReason) {
  Puppet other_step(port_, 1, "12.0");
  Puppet other_version(port_, 2, "test", "ddp-check 0.0.1");
  Puppet right(port_, 3);
  Puppet twice(port_, 3);
  Leader& leader = call(2, std::chrono::milliseconds(500));
  EXPECT_EQ(leader.present().size(), 1U);
  EXPECT_EQ(leader.refusals().size(), 3U);
  EXPECT_THAT(other_step.receive().at("refused").get<std::string>(),
              HasSubstr("belongs to another job step"));
  EXPECT_THAT(other_version.receive().at("refused").get<std::string>(),
              HasSubstr("runs ddp-check 0.0.1"));
}

TEST(SuspensionRecord, CountsLongGapsBetweenLooks) {
  const Clock::time_point start{};
  SuspensionRecord record(start);
  EXPECT_EQ(record.look(start + std::chrono::milliseconds(500)), Clock::duration::zero());
  EXPECT_EQ(record.look(start + std::chrono::milliseconds(3'000)), Clock::duration::zero())
      << "a busy machine";
  EXPECT_EQ(record.look(start + std::chrono::seconds(13)), std::chrono::seconds(10));
  EXPECT_EQ(record.look(start + std::chrono::seconds(14)), std::chrono::seconds(10));
}

// Rank 0 evaluates the messages of thousands of tasks, and MPI's start takes minutes.
TEST(SuspensionWatch, LongWorkIsNoSuspension) {
  const SuspensionWatch watch;
  std::this_thread::sleep_for(SuspensionRecord::kShortest + std::chrono::milliseconds(100));
  EXPECT_EQ(watch.total(), Clock::duration::zero());
}

// A false claim by another program must not make an administrator drain a node.
TEST_F(LeaderOnTheWire, RanksAndNodesOutsideTheStepAreRejected) {
  step_.size = 3;
  step_.nodes = {{"n1", 1}, {"n2", 2}};
  struct Claim {
    int rank;
    const char* node;
    const char* refusal;  // empty: accepted
  };
  const std::vector<Claim> claims{
      {57, "n1", "n1 reported as rank 57 of a step of 3 tasks"},
      {-1, "n1", "n1 reported as rank -1 of a step of 3 tasks"},
      {0, "ALL", "'ALL' is not a node name"},
      {0, "n[1-2]", "'n[1-2]' is not a node name"},
      {0, "n1\n\x1b]0;x\a", "'n1 ?]0;x?' is not a node name"},
      {0, "n3", "rank 0 reported from n3, which is not a node of this step"},
      {0, "n1", ""},
      {2, "n1", "rank 2 reported from n1, but all tasks of this node (1) have already reported"},
      {1, "n2", ""}};
  std::vector<std::unique_ptr<Puppet>> puppets;
  for (const auto& claim : claims) {
    puppets.push_back(
        std::make_unique<Puppet>(port_, claim.rank, "test", "ddp-check test", claim.node));
  }
  const Leader& leader = call(2);  // two claims are valid, and the second of these comes last
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const auto answer = puppets[i]->receive();
    EXPECT_EQ(answer.value("refused", ""), claims[i].refusal);
    EXPECT_EQ(answer.contains("welcome"), *claims[i].refusal == '\0');
  }
  EXPECT_EQ(leader.present().size(), 2U);
}

// ---- strangers

FileDescriptor stranger_at(std::uint16_t port, const std::string& says = "") {
  FileDescriptor socket = connect_to("127.0.0.1", port, Clock::now() + std::chrono::seconds(120));
  send_all(socket.get(), std::as_bytes(std::span(says)), Clock::now() + std::chrono::seconds(120));
  return socket;
}

TEST_F(LeaderOnTheWire, SilentStrangersDoNotLockTasksOut) {
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(stranger_at(port_));
  Puppet task(port_, 0);
  EXPECT_EQ(call(1).present().size(), 1U);
}

// The first task connects after the strangers, and the second task after the first.
TEST_F(LeaderOnTheWire, OfTooManySilentStrangersTheOldestAreDropped) {
  constexpr std::size_t kMost = 2 + 64;  // two tasks and 64 strangers
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(stranger_at(port_));
  Puppet first(port_, 0);
  std::unique_ptr<Puppet> second;
  call(2, std::chrono::seconds(120), [&](const std::string&) {
    if (second) return;
    second = std::make_unique<Puppet>(port_, 1);
    for (std::size_t i = 0; i < strangers.size() - kMost; ++i) {
      const Deadline end = Clock::now() + std::chrono::seconds(10);
      ASSERT_TRUE(wait_for(strangers[i].get(), POLLIN, end))
          << "stranger " << i << " is still there";
    }
  });
  EXPECT_EQ(leader_->present().size(), 2U);
}

// The task waits until the other program's connection is closed.
TEST_F(LeaderOnTheWire, SilentConnectionsAreDropped) {
  std::unique_ptr<Puppet> task;
  std::thread watcher([&, stranger = stranger_at(port_)] {
    std::array<std::byte, 1> nothing{};
    EXPECT_THROW(receive_all(stranger.get(), nothing, Clock::now() + std::chrono::hours(1)),
                 NetError);
    task = std::make_unique<Puppet>(port_, 0);
  });
  EXPECT_EQ(call(1).present().size(), 1U);
  watcher.join();
}

TEST_F(LeaderOnTheWire, PortIsClosedAfterTheRollCall) {
  Puppet task(port_, 0);
  call(1);
  EXPECT_THROW(stranger_at(port_), NetError);
}

// The check loses a task that sends an invalid answer, reports it by name, and continues without
// it.
TEST_F(LeaderOnTheWire, InvalidAnswersLoseTheTaskButNotTheCheck) {
  const auto exchanged = [](const char* key, const nlohmann::json& value) {
    nlohmann::json answer = to_message(ExchangeResult{});
    answer[key] = value;
    return answer.dump();
  };
  const auto timed = [](const std::vector<double>& seconds) {
    return to_message(CollectiveResult{seconds, {}}).dump();
  };
  const std::string exchange = R"({"do": "exchange"})";
  const std::string collective =
      to_message(CollectiveCommand{Collective::all_reduce, 1, 2, 3}).dump();
  const std::vector<std::pair<std::string, std::string>> invalid{
      {R"({"do": "x"})", R"({"error": 5})"},
      {R"({"do": "resolve"})", R"({"addresses": 5})"},
      {R"({"do": "resolve"})", "{}"},
      {exchange, exchanged("received_per_second", "fast")},
      {exchange, exchanged("sent_per_second", 1.7e308)},
      {exchange, exchanged("received_per_second", -1)},
      {exchange, exchanged("latency_seconds", -1)},
      {exchange, exchanged("lost", 1e300)},
      {R"({"do": "probe_path"})", R"({"arrived": -7, "mtu": 1500})"},
      {R"({"do": "probe_path"})", R"({"arrived": 7, "mtu": "1500"})"},
      {R"({"do": "final_checks"})", R"({"unix_time": 1e300, "counters": {"a": 1}})"},
      {R"({"do": "final_checks"})", R"({"unix_time": 1, "counters": {"a": -1}})"},
      {R"({"do": "transport"})", R"({"traffic": {"a": "b"}, "modules": ""})"},
      {collective, timed({1, -1, 1})},
      {collective, timed({1})}};
  std::vector<std::unique_ptr<Puppet>> puppets;
  ByRank commands;
  for (const auto& [command, answer] : invalid) {
    const int rank = static_cast<int>(puppets.size());
    puppets.push_back(std::make_unique<Puppet>(port_, rank));
    commands[rank] = nlohmann::json::parse(command);
  }
  Leader& leader = call(static_cast<int>(invalid.size()));
  std::thread tasks([&] {
    for (std::size_t rank = 0; rank < invalid.size(); ++rank) {
      puppets[rank]->receive();  // the welcome
      nlohmann::json answer = nlohmann::json::parse(invalid[rank].second);
      answer["id"] = puppets[rank]->receive().at("id");
      puppets[rank]->answer(answer);
    }
  });
  EXPECT_EQ(leader.ask(commands, "the test", std::chrono::seconds(120)), ByRank{});
  tasks.join();
  ASSERT_EQ(leader.lost().size(), invalid.size());
  for (const auto& task : leader.lost()) {
    EXPECT_EQ(task.during, "the test");
    EXPECT_EQ(task.why, "it sent an invalid answer")
        << invalid[static_cast<std::size_t>(task.rank)].second;
  }
}

// ---- with a secret

class LeaderWithASecret : public LeaderOnTheWire {
 protected:
  LeaderWithASecret() { secret_ = comm::StepSecret(comm::KeySource::file, random_key()); }
};

TEST_F(LeaderWithASecret, AcceptsTasksWithTheSecret) {
  std::thread task([this] {
    Puppet puppet(port_, 0, "test", "ddp-check test", "", secret_);
    EXPECT_EQ(puppet.receive().at("welcome"), 0);
    puppet.answer({{"id", puppet.receive().at("id")}, {"result", 42}});
  });
  Leader& leader = call(1);
  EXPECT_EQ(leader.ask_all({{"do", "x"}}, "the test", std::chrono::seconds(120)).at(0).at("result"),
            42);
  task.join();
}

// The task is older than all strangers, and answers when the first of them has been dropped.
TEST_F(LeaderWithASecret, SilentStrangersAreDroppedBeforeATaskThatPresentedItself) {
  const Deadline end = Clock::now() + std::chrono::seconds(120);
  ControlChannel task(connect_to("127.0.0.1", port_, end));
  const Presentation claim{"ddp-check test", "test", 0, "n0", "file", random_nonce()};
  task.send(to_message(claim), end);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(stranger_at(port_));
  std::thread rest([&] {
    EXPECT_TRUE(wait_for(strangers[0].get(), POLLIN, end));
    try {
      const auto meeting = meeting_of(claim, task.receive(end).value().at("nonce"));
      task.send({{"proof", proof_of(secret_.key(), meeting, Side::caller)}}, end);
      task.seal(session_key(secret_.key(), meeting, Side::caller),
                session_key(secret_.key(), meeting, Side::listener));
      Hello hello;
      hello.program = claim.program;
      hello.identity = claim.identity;
      hello.node = claim.node;
      task.send(to_message(hello), end);
      EXPECT_EQ(task.receive(end).value().at("welcome"), 0);
    } catch (const NetError& error) {
      ADD_FAILURE() << "the task was dropped: " << error.what();
    }
  });
  EXPECT_EQ(call(1).present().size(), 1U);
  rest.join();
}

// Another program first tries to take the place of rank 0 in every possible way; then the task
// reports.
TEST_F(LeaderWithASecret, RejectsStrangersWithoutAFinding) {
  std::thread tasks([this] {
    const Deadline end = Clock::now() + std::chrono::seconds(120);
    ControlChannel without(connect_to("127.0.0.1", port_, end));
    without.send(to_message(Presentation{"ddp-check test", "test", 0, "n0", "none", ""}), end);
    EXPECT_THAT(without.receive(end)->value("refused", ""), HasSubstr("has a key from: none"));
    EXPECT_THROW(Puppet(port_, 0, "test", "ddp-check test", "",
                        comm::StepSecret(comm::KeySource::file, random_key())),
                 NetError);  // the leader's proof does not match this key
    for (const bool reflects : {true, false}) {
      ControlChannel liar(connect_to("127.0.0.1", port_, end));
      Presentation claim{"ddp-check test", "test", 0, "n0", "file", random_nonce()};
      liar.send(to_message(claim), end);
      const auto challenge = liar.receive(end).value();
      liar.send({{"proof", reflects ? challenge.at("proof").get<std::string>() : ""}}, end);
      EXPECT_THROW(liar.receive(end), NetError);
    }
    Puppet task(port_, 0, "test", "ddp-check test", "", secret_);
    EXPECT_EQ(task.receive().at("welcome"), 0);
  });
  const Leader& leader = call(1);
  tasks.join();
  EXPECT_EQ(leader.present().size(), 1U);
  EXPECT_THAT(leader.refusals(), testing::IsEmpty());
}

TEST_F(LeaderOnTheWire, RefusalsAreFewAndShort) {
  std::vector<std::unique_ptr<Puppet>> puppets;
  for (int i = 0; i < 40; ++i) {
    puppets.push_back(
        std::make_unique<Puppet>(port_, 0, "test", "ddp-check test", std::string(3000, 'x') + " "));
  }
  Puppet task(port_, 0);
  const Leader& leader = call(1);
  EXPECT_LE(leader.refusals().size(), 16U);
  ASSERT_FALSE(leader.refusals().empty());
  for (const auto& text : leader.refusals()) EXPECT_LE(text.size(), 200U);
}

TEST_F(LeaderOnTheWire, LosesSilentDeadAndInvalidTasksButNotSlowOnes) {
  Puppet good(port_, 0);
  Puppet slow(port_, 1);
  Puppet silent(port_, 2);
  auto dead = std::make_unique<Puppet>(port_, 3);
  Puppet confused(port_, 4);
  Leader& leader = call(5);
  std::thread puppets([&] {
    for (Puppet* puppet : {&good, &slow, &silent, dead.get(), &confused}) puppet->receive();
    good.answer({{"id", good.receive().at("id")}, {"result", 42}});
    dead.reset();
    confused.answer({{"result", 42}});
    const auto late = slow.receive().at("id");
    const auto ping = slow.receive();  // the task answers the ping first, then the command
    slow.answer({{"id", ping.at("id")}});
    slow.answer({{"id", late}, {"result", 1}});
    slow.answer({{"id", slow.receive().at("id")}, {"result", 2}});
  });
  ByRank commands;
  for (int rank = 0; rank < 5; ++rank) commands[rank] = {{"do", "something"}};
  const ByRank answers = leader.ask(commands, "the test", std::chrono::milliseconds(300));
  EXPECT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers.at(0).at("result"), 42);
  std::set<int> lost;
  for (const auto& task : leader.lost()) lost.insert(task.rank);
  EXPECT_EQ(lost, (std::set<int>{2, 3, 4}));
  // The late answer to the first command must not count as the answer to the second.
  const ByRank second = leader.ask({{1, {{"do", "more"}}}}, "the test", std::chrono::seconds(120));
  EXPECT_EQ(second.at(1).at("result"), 2);
  puppets.join();
}

// A task exits when its connection closes, and mpirun terminates all tasks as soon as one exits
// with an error.
TEST_F(LeaderOnTheWire, LostTaskKeepsItsConnectionUntilTheVerdict) {
  Puppet silent(port_, 0);
  Leader& leader = call(1);
  leader.ask({{0, {{"do", "something"}}}}, "the test", std::chrono::milliseconds(10));
  ASSERT_EQ(leader.lost().size(), 1U);
  leader.shut_down({{"do", "verdict"}, {"exit_code", 2}});
  std::vector<std::string> heard;
  for (int i = 0; i < 4; ++i) heard.push_back(silent.receive().value("do", "welcome"));
  EXPECT_EQ(heard, (std::vector<std::string>{"welcome", "something", "ping", "verdict"}));
}

// The timeout is a day, so the test hangs if the wait does not end early.
TEST_F(LeaderOnTheWire, DoesNotWaitForAVanishedTask) {
  Puppet alive(port_, 0);
  Puppet vanished(port_, 1);
  Leader& leader = call(2);
  std::thread puppets([&] {
    alive.receive();  // welcome
    const auto command = alive.receive().at("id");
    alive.answer({{"id", alive.receive().at("id")}});  // answers the first ping
    alive.answer({{"id", command}, {"result", 1}});    // arrives while the leader waits for others
  });
  leader.ask_all({{"do", "start_mpi"}}, "the test", std::chrono::hours(23));
  EXPECT_EQ(leader.lost().size(), 1U);
  EXPECT_EQ(leader.lost().front().rank, 1);
  puppets.join();
}

// Without the arrival time, waiting for one task would make the clocks of all others look slow.
TEST_F(LeaderOnTheWire, AnswersCarryTheirArrivalTime) {
  Puppet quick(port_, 0);
  Puppet silent(port_, 1);
  Leader& leader = call(2);
  std::thread puppets([&] {
    quick.receive();  // welcome
    quick.answer({{"id", quick.receive().at("id")}});
  });
  const double before = unix_time({});
  const ByRank commands{{0, {{"do", "anything"}}}, {1, {{"do", "anything"}}}};
  const ByRank answers = leader.ask(commands, "the test", std::chrono::milliseconds(1000));
  const double after = unix_time({});  // the leader waited a second for the silent task
  puppets.join();
  EXPECT_GE(answers.at(0).at("arrival_time").get<double>(), before);
  EXPECT_LT(answers.at(0).at("arrival_time").get<double>(), after - 0.9);
}

// Other tools have lost all results in jobs of more than 300 nodes.
TEST_F(LeaderOnTheWire, FourHundredTasksReportAndAnswer) {
  constexpr int kTasks = 400;
  std::vector<std::unique_ptr<Puppet>> puppets;
  std::thread tasks([&] {
    for (int rank = 0; rank < kTasks; ++rank) {
      puppets.push_back(std::make_unique<Puppet>(port_, rank));
    }
    for (auto& puppet : puppets) puppet->receive();  // welcome
    for (auto& puppet : puppets) {
      puppet->answer({{"id", puppet->receive().at("id")}, {"text", std::string(2000, 'x')}});
    }
  });
  Leader& leader = call(kTasks);
  EXPECT_EQ(leader.present().size(), static_cast<std::size_t>(kTasks));
  const ByRank answers = leader.ask_all({{"do", "x"}}, "the test", std::chrono::seconds(120));
  EXPECT_EQ(answers.size(), static_cast<std::size_t>(kTasks));
  EXPECT_TRUE(leader.all_reachable());
  tasks.join();
}

}  // namespace
}  // namespace ddp::check
