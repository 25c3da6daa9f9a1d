// SPDX-License-Identifier: Apache-2.0
// Tests ranks that connect over TCP: the plan, the rendezvous, and what happens to a message. That
// collectives have the bits of other transports is tested by the suites that run over TCP, too; see
// ranks.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/failure/hub_search.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/transport/tcp/tcp_plan.h"
#include "ddp_runtime/comm/transport/tcp/tcp_stream.h"
#include "tests/unit/comm/ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using namespace std::chrono_literals;

// ---- The plan

class TcpPlanOf : public testing::Test {
 protected:
  std::string problem(const std::map<std::string, std::string>& changes) {
    auto variables = variables_;
    for (const auto& [name, value] : changes) variables[name] = value;
    std::string why;
    plan_ = tcp_plan(
        [&](const char* name) -> const char* {
          const auto found = variables.find(name);
          return found == variables.end() || found->second == "-" ? nullptr : found->second.c_str();
        },
        std::nullopt, &why);
    EXPECT_EQ(plan_.has_value(), why.empty());
    return why;
  }

  std::map<std::string, std::string> variables_{
      {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4711"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}};
  std::optional<TcpPlan> plan_;
};

TEST_F(TcpPlanOf, TheEnvironment) {
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(plan_->leader, "node1");
  EXPECT_EQ(plan_->port, 4711);
  EXPECT_EQ(plan_->rank, 2);
  EXPECT_EQ(plan_->ranks, 4);
  EXPECT_EQ(problem({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}}), "");
}

TEST_F(TcpPlanOf, WhatIsMissingOrWrongIsNamed) {
  EXPECT_EQ(problem({{"MASTER_ADDR", "-"}}),
            "ranks that connect over TCP need a launch plan, but MASTER_ADDR is not set; start the "
            "step with srun --ddp, or the program with ddp-launch");
  EXPECT_THAT(problem({{"MASTER_PORT", "0"}}), HasSubstr("MASTER_PORT='0' is not a number from 1"));
  EXPECT_THAT(problem({{"RANK", "x"}}), HasSubstr("RANK='x' is not"));
  EXPECT_THAT(problem({{"WORLD_SIZE", "-"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(problem({{"RANK", "4"}}), HasSubstr("RANK=4 is not below WORLD_SIZE=4"));
}

TEST_F(TcpPlanOf, AnotherStepIsRefused) {
  EXPECT_THAT(problem({{"SLURM_STEP_NUM_TASKS", "2"}}),
              HasSubstr("WORLD_SIZE=4, but SLURM_STEP_NUM_TASKS='2'"));
  EXPECT_THAT(problem({{"SLURM_PROCID", "0"}}), HasSubstr("RANK=2, but SLURM_PROCID='0'"));
  // The ranks of mpirun have the variables of the script.
  std::map<std::string, std::string> mpirun{{"SLURM_PROCID", "0"},
                                            {"SLURM_STEP_NUM_TASKS", "1"},
                                            {"OMPI_COMM_WORLD_SIZE", "4"},
                                            {"OMPI_COMM_WORLD_RANK", "2"}};
  EXPECT_EQ(problem(mpirun), "");
  mpirun["OMPI_COMM_WORLD_RANK"] = "1";
  EXPECT_THAT(problem(mpirun), HasSubstr("RANK=2, but OMPI_COMM_WORLD_RANK='1'"));
}

// ---- The rendezvous

TEST(TcpDirectory, IsReadAsWritten) {
  const Directory directory{{{"node1"}, 4711}, {{"fe00::1", "10.0.0.3"}, 65535}, {{"10.0.0.1"}, 1}};
  const auto written = text_of(directory);
  EXPECT_EQ(written, "4711 node1\n65535 fe00::1 10.0.0.3\n1 10.0.0.1\n");
  EXPECT_EQ(text_of(directory_of(written)), written);
  for (const char* const text : {"node1", "node1\n", "node1 1\nnode2"}) {
    EXPECT_THAT(error_of([&] { directory_of(text); }), HasSubstr("malformed")) << text;
  }
}

// What each rank throws; empty: nothing.
std::vector<std::string> errors_of_ranks(const std::vector<TcpPlan>& plans,
                                         std::chrono::milliseconds timeout) {
  std::vector<std::string> errors(plans.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    threads.emplace_back([&, i] {
      const FailureState failures;
      errors[i] = error_of([&] { make_tcp_transport(plans[i], failures, timeout); });
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

TcpPlan of_rank(TcpPlan plan, int rank) {
  plan.rank = rank;
  return plan;
}

// The limit must be short.
TEST(TcpRendezvous, MissingRanksAreNamedOnAll) {
  const auto plan = test::local_plan(4);
  const auto errors = errors_of_ranks({of_rank(plan, 0), of_rank(plan, 2)}, 1s);
  for (const auto& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("2 of 4 ranks did not connect to rank 0 at 127.0.0.1, port " +
                          std::to_string(plan.port) + ", within 1 s: 1, 3; they have not started"));
  }
}

// What a rank says while it waits.
std::string said_by(const TcpPlan& plan) {
  FailureState failures;
  std::string said;
  failures.on_slow_wait([&](const std::string& text) { said += text + "\n"; });
  error_of([&] { make_tcp_transport(plan, failures, 200ms); });
  return said;
}

TEST(TcpRendezvous, ALongWaitIsToldOnce) {
  auto plan = test::local_plan(11);
  const auto port = std::to_string(plan.port);
  EXPECT_EQ(said_by(plan), "10 of 11 ranks did not connect to rank 0 at 127.0.0.1, port " + port +
                               " yet: 1, 2, 3, 4, 5, 6, 7, 8, ...; waiting for at most 1 s\n");
  EXPECT_THAT(said_by(of_rank(plan, 8)),
              AllOf(HasSubstr("rank 8: this rank cannot open a TCP connection to rank 0"),
                    EndsWith("; waiting for at most 1 s\n")));
  EXPECT_EQ(said_by(of_rank(plan, 9)), "");
}

TEST(TcpRendezvous, AProgramWithoutTheKeyIsRefusedAndNamed) {
  const auto plan = test::local_plan(2);
  auto stranger = of_rank(plan, 1);
  stranger.key = hmac_sha256({}, "another step");
  const auto errors = errors_of_ranks({of_rank(plan, 0), stranger}, 1s);
  EXPECT_THAT(errors[0], HasSubstr("1 of 2 ranks did not connect"));
  EXPECT_THAT(errors[1],
              HasSubstr("is not rank 0 of this job, because it does not have the job's"));
}

TEST(TcpRendezvous, ATakenPortIsAnError) {
  const Listener other = open_listener(0);
  auto plan = test::local_plan(2);
  plan.port = other.port;
  EXPECT_THAT(errors_of_ranks({plan}, 1s)[0],
              AllOf(HasSubstr("rank 0 cannot listen at port"), HasSubstr("start the step again")));
}

TEST(TcpRendezvous, RanksThatExpectOtherNumbersOfRanksAreNamed) {
  const auto plan = test::local_plan(2);
  auto other = of_rank(plan, 2);
  other.ranks = 3;
  for (const auto& error : errors_of_ranks({of_rank(plan, 0), other}, 60s)) {
    EXPECT_THAT(error, HasSubstr("rank 2 at 127.0.0.1 was started as one of 3 ranks, and rank 0 as "
                                 "one of 2"));
  }
}

TEST(TcpRendezvous, ARankThatEndedBeforeAllHadComeMayBeStartedAgain) {
  const auto plan = test::local_plan(3);
  std::vector<std::string> errors(2);
  std::thread leader([&] { errors[0] = errors_of_ranks({of_rank(plan, 0)}, 60s).front(); });
  const FailureState failures;
  const HubAddress at{{plan.leader}, plan.port, ""};
  const auto who = text_of(Call{"rendezvous", 0, "3 4711 127.0.0.1"});
  ASSERT_TRUE(reach_hub(at, {plan.key, 1, who}, {10s, 60s}, failures).connection);  // and has gone
  const auto others = errors_of_ranks({of_rank(plan, 1), of_rank(plan, 2)}, 60s);
  leader.join();
  EXPECT_THAT(others, testing::Each(""));
  EXPECT_EQ(errors[0], "");
}

TEST(TcpRendezvous, AnUnknownNameIsNamed) {
  auto plan = of_rank(test::local_plan(2), 1);
  plan.leader = "no.such.name.invalid";
  EXPECT_THAT(errors_of_ranks({plan}, 1s)[0],
              HasSubstr("MASTER_ADDR='no.such.name.invalid' is unknown on this machine"));
}

// On Debian, a machine's own name may mean 127.0.1.1 on it.
TEST(TcpRendezvous, LoopbackAddressesAreThoseOfRank0sMachine) {
  Directory directory{{{"node1"}, 1}, {{"127.0.0.1", "10.0.0.1"}, 2}, {{"10.0.0.2"}, 3}};
  correct_loopbacks(directory, "10.0.0.1");
  EXPECT_EQ(text_of(directory), "1 10.0.0.1\n2 10.0.0.1 10.0.0.1\n3 10.0.0.2\n");
  Directory on_it{{{"node1"}, 1}, {{"127.0.0.1"}, 2}, {{"10.0.0.2"}, 3}};
  correct_loopbacks(on_it, "127.0.1.1");
  EXPECT_EQ(text_of(on_it), "1 127.0.1.1\n2 127.0.0.1\n3 10.0.0.2\n");
}

// Its address may be that of another machine, seen from there.
TEST(TcpSwitchboard, ACallForAnotherRankIsRefused) {
  const auto plan = test::local_plan(4);
  Switchboard switchboard(open_listener(0), plan.key, 2, 4);
  const FailureState failures;
  const auto reached = [&](int callee) {
    const auto who = text_of(Call{"data", callee, ""});
    return reach_hub({{"127.0.0.1"}, switchboard.port(), ""}, {plan.key, 3, who}, {10s, 0s},
                     failures);
  };
  EXPECT_TRUE(reached(1).silent);
  EXPECT_TRUE(switchboard.mailbox("data")->empty());
  EXPECT_TRUE(reached(2).connection);
}

TEST(TcpSwitchboard, EachAddressOfANameIsTried) {
  const auto plan = test::local_plan(2);
  const auto listener_at = [](const std::string& address, std::uint16_t port) {
    const auto found = find_addresses(address, port, AI_NUMERICHOST);
    FileDescriptor socket = open_socket(*found);
    const int on = 1;
    if (found->ai_family == AF_INET6) {
      setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    if (bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return FileDescriptor();
    listen(socket.get(), 8);
    return socket;
  };
  const FileDescriptor stranger = listener_at("::1", plan.port);  // accepts, and stays silent
  FileDescriptor own = listener_at("127.0.0.1", plan.port);
  if (!stranger || !own) GTEST_SKIP() << "the port is free for only one of ::1 and 127.0.0.1";
  const Switchboard switchboard({std::move(own), plan.port}, plan.key, 0, 2);
  const FailureState failures;
  for (const char* const name : {"localhost", "127.0.0.1"}) {
    const auto who = text_of(Call{name, 0, ""});
    auto reached =
        reach_hub({{"::1", name}, plan.port, ""}, {plan.key, 1, who}, {500ms, 60s}, failures);
    ASSERT_TRUE(reached.connection) << name;
    EXPECT_EQ(reached.connection->peer()->host, "127.0.0.1");
  }
}

TEST(TcpSwitchboard, ReadsCallsAsWritten) {
  const auto call = call_of(text_of(Call{"data/1:0", 17, "a b"}));
  ASSERT_TRUE(call);
  EXPECT_EQ(call->receiver, "data/1:0");
  EXPECT_EQ(call->callee, 17);
  EXPECT_EQ(call->remark, "a b");
  for (const auto* text : {"", "data", "data 1", "data x y", "data 1x y"}) {
    EXPECT_FALSE(call_of(text)) << text;
  }
}

TEST(TcpRendezvous, ASecondProcessWithTheSameRankIsRefused) {
  const auto plan = test::local_plan(3);
  const auto errors = errors_of_ranks({of_rank(plan, 0), of_rank(plan, 1), of_rank(plan, 1)}, 2s);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("1 of 3 ranks did not connect"), HasSubstr(": 2;")));
  EXPECT_NE(errors[1], errors[2]) << "one of them is told what rank 0 says, and the other refused";
  EXPECT_THAT(errors, Contains(HasSubstr("or another process has connected as rank 1")));
}

// ---- Messages

class TcpStreams : public testing::Test {
 protected:
  TcpStreams() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets.data()),
              0);
    a_.attach(FileDescriptor(sockets[0]), {});
    b_.attach(FileDescriptor(sockets[1]), {});
  }
  std::vector<Ticket> finished(TcpStream& stream) {
    std::vector<Ticket> tickets;
    for (int i = 0; i < 100; ++i) {
      for (const auto& each : stream.progress()) tickets.push_back(each.ticket);
      (&stream == &a_ ? b_ : a_).progress();
    }
    return tickets;
  }
  static std::span<const std::byte> bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  static std::span<std::byte> bytes(std::string& text) {
    return std::as_writable_bytes(std::span(text));
  }

  TcpStream a_;
  TcpStream b_;
};

TEST_F(TcpStreams, MessagesOfOneTagArriveInOrderAndOfAnotherWhenAskedFor) {
  const std::string text[] = {"first", "other", "second", ""};
  a_.send(1, 7, bytes(text[0]));
  a_.send(2, 8, bytes(text[1]));
  a_.send(3, 7, bytes(text[2]));
  a_.send(4, 9, bytes(text[3]));
  std::string received[] = {"12345", "12345", "123456", ""};
  b_.receive(10, 8, bytes(received[1]));
  EXPECT_THAT(finished(b_), testing::ElementsAre(10));
  b_.receive(11, 7, bytes(received[0]));
  b_.receive(12, 7, bytes(received[2]));
  b_.receive(13, 9, bytes(received[3]));
  EXPECT_THAT(finished(b_), testing::UnorderedElementsAre(11, 12, 13));
  EXPECT_THAT(received, testing::ElementsAreArray(text));
}

TEST_F(TcpStreams, AMessageWithoutAReceiveStaysInTheKernel) {
  const std::string large(std::size_t{1} << 24, 'x');
  a_.send(1, 7, bytes(large));
  EXPECT_THAT(finished(b_), testing::IsEmpty());
  EXPECT_THAT(finished(a_), testing::IsEmpty()) << "the sender waits";
  std::string received(large.size(), ' ');
  b_.receive(2, 7, bytes(received));
  std::vector<Ticket> done;
  for (int i = 0; i < 100000 && done.empty(); ++i) {
    a_.progress();
    for (const auto& each : b_.progress()) done.push_back(each.ticket);
  }
  EXPECT_EQ(received, large);
}

// Also if the message has been read before it was asked for.
TEST_F(TcpStreams, AWrongLengthIsNoticed) {
  const std::string text = "four";
  std::string received = "12345";
  std::string other = "1";
  a_.send(1, 8, bytes(text));
  a_.send(2, 7, bytes(text));
  b_.receive(3, 9, bytes(other));  // makes it read the others
  EXPECT_THAT(finished(b_), testing::IsEmpty());
  for (const int tag : {8, 7}) {
    b_.receive(4, tag, bytes(received));
    const auto finished = b_.progress();
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_TRUE(finished[0].wrong_length);
  }
  a_.send(5, 6, bytes(text));
  b_.receive(6, 6, bytes(received));
  a_.progress();
  const auto late = b_.progress();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_TRUE(late[0].wrong_length);
  EXPECT_TRUE(b_.ended()) << "what comes behind has no meaning";
}

TEST_F(TcpStreams, HalfAMessageThatIsForgottenEndsTheConnection) {
  const std::string large(std::size_t{1} << 24, 'x');
  a_.send(1, 7, bytes(large));
  a_.progress();
  std::string received(large.size(), ' ');
  b_.receive(2, 7, bytes(received));
  b_.progress();
  b_.forget(2);
  EXPECT_TRUE(b_.ended());
  a_.forget(1);
  EXPECT_TRUE(a_.ended());
}

TEST(TcpRanks, ALostConnectionIsASymptom) {
  const auto plan = test::local_plan(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const FailureState failures;
      const auto transport = make_tcp_transport(of_rank(plan, rank), failures, 60s);
      std::byte byte{1};
      const Ticket ticket = rank == 0 ? transport->post_send({&byte, 1}, 1, 5)
                                      : transport->post_receive({&byte, 1}, 0, 5);
      while (!transport->poll(ticket)) transport->idle(1000);
      if (rank == 0) return;
      errors[1] = error_of([&] {
        const Ticket next = transport->post_receive({&byte, 1}, 0, 5);
        while (!transport->poll(next)) transport->idle(1000);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors[1], "rank 1 lost its connection to rank 0");
}

}  // namespace
}  // namespace ddp::comm
