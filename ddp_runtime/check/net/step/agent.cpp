// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/net/measure/own_facts.h"
#include "ddp_runtime/check/net/measure/own_link.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/check/net/step/command_handler.h"
#include "ddp_runtime/check/net/step/control_channel.h"
#include "ddp_runtime/check/net/step/handshake.h"
#include "ddp_runtime/check/net/step/worker.h"

namespace ddp::check {
namespace {

constexpr std::chrono::seconds kOneAttempt{3};
constexpr std::chrono::milliseconds kBetweenAttempts{100};
constexpr std::chrono::milliseconds kWorkerTimeout{2000};

using nlohmann::json;

struct Reported {
  std::shared_ptr<ControlChannel> channel;
  std::string leader;  // its address
  Key key{};           // the step's
};

// Connects to the leader and reports, in one attempt. Throws NetError with the reason from the
// leader or from the process that answered.
Reported report_to(const std::string& host, const AgentOptions& options, Hello hello,
                   Deadline deadline) {
  FileDescriptor socket = connect_to(host, options.leader_port, deadline);
  hello.address = local_address(socket.get());
  hello.leader_address = remote_address(socket.get());
  describe_link(hello);
  auto channel = std::make_shared<ControlChannel>(std::move(socket));
  const Key key = introduce(*channel, hello, options.secret, deadline);
  hello.unix_time = unix_time(faults_of(options.step.node, options.injections));
  channel->send(to_message(hello), deadline);
  const auto answer = channel->receive(deadline);
  if (!answer) {
    throw NetError(
        fmt::format("the process at {} port {} is not ddp-check", host, options.leader_port));
  }
  require_no_refusal(*answer);
  if (answer->value("welcome", -1) != hello.rank) {
    throw NetError(fmt::format("{} port {} did not confirm the rank", host, options.leader_port));
  }
  return {std::move(channel), hello.leader_address, key};
}

// Retries until the deadline, because tasks start at different times. The leader's own task falls
// back to the loopback address, so that the check reports a wrong MASTER_ADDR instead of failing.
Reported find_leader(const AgentOptions& options, Hello hello) {
  const Deadline deadline = Clock::now() + options.deadline;
  const Deadline loopback_from =
      Clock::now() + std::min(options.deadline / 3, std::chrono::milliseconds(3000));
  std::string last = "no time left to connect";
  while (Clock::now() < deadline) {
    hello.by_loopback = options.leaders_own && Clock::now() > loopback_from;
    try {
      return report_to(hello.by_loopback ? "127.0.0.1" : options.step.leader_host, options, hello,
                       std::min(deadline, Clock::now() + kOneAttempt));
    } catch (const NetError& error) {
      last = error.what();
    } catch (const json::exception&) {
      last = "it uses another protocol";
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  throw NetError(fmt::format("{} (rank {}) could not report to the leader at {} port {}: {}",
                             options.step.node, options.step.rank, options.step.leader_host,
                             options.leader_port, last));
}

Hello make_hello(const AgentOptions& options, std::uint16_t data_port, std::uint16_t probe_port) {
  Hello hello;
  hello.program = options.program;
  hello.identity = options.step.identity;
  hello.rank = options.step.rank;
  hello.node = options.step.node;
  hello.host = options.host;
  hello.data_port = data_port;
  hello.probe_port = probe_port;
  hello.facts = own_facts(fact_sources(process_environment()));
  hello.counters = read_counters("/sys");
  hello.leaf = options.step.leaf;
  hello.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (const auto& own : options.rdma.ports) hello.rdma_ports.push_back(own.port);
  hello.rdma_untested = options.rdma.untested;
  hello.rdma_measurable = options.rdma.runnable();
  hello.gpus = options.nccl.gpus;
  hello.nccl_version = options.nccl.version;
  hello.nccl_problem = options.nccl.problem;
  hello.leader_host = options.step.leader_host;
  const Resolution leader = resolve(hello.leader_host, std::chrono::seconds(2));
  hello.leader_addresses = leader.addresses;
  hello.leader_lookup_error = leader.error;
  return hello;
}

bool hangs_at(const json& command, const Faults& faults) {
  return faults.hang && command.value("do", "") == "exchange" &&
         command.value("stage", "") == name_of(*faults.hang);
}

// Simulates a hang: ignores all messages until the other end closes the connection.
void hang(const ControlChannel& channel) {
  pollfd entry{channel.fd(), POLLRDHUP, 0};
  poll(&entry, 1, -1);
}

// Runs on the worker thread. Returns any error as the answer.
json answer_to(const json& command, CommandHandler& work) noexcept {
  try {
    return work.execute(command);
  } catch (const PeerFailure& failure) {
    return {{"error", failure.what()}, {"of_peer", true}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

void post(Worker& worker, const std::shared_ptr<ControlChannel>& channel,
          const std::shared_ptr<CommandHandler>& work, const json& command) {
  worker.post([channel, work, command] {
    json answer = answer_to(command, *work);
    answer["id"] = command.at("id");
    try {
      channel->send(answer, Clock::now() + kSendTimeout);
    } catch (const NetError&) {
      return;  // the leader is gone, which the task's main loop detects
    }
  });
}

// Runs until the verdict arrives, and returns its exit code.
int obey(const std::shared_ptr<ControlChannel>& channel,
         const std::shared_ptr<CommandHandler>& work, Worker& worker, const AgentOptions& options) {
  while (true) {
    const auto command = channel->receive(Clock::now() + options.silence);
    if (!command) {
      throw NetError(fmt::format("the leader at {} was silent for {:g} s", options.step.leader_host,
                                 std::chrono::duration<double>(options.silence).count()));
    }
    const std::string what = command->at("do");
    if (what == "verdict") return command->at("exit_code");
    if (what == "ping") {
      channel->send({{"id", command->at("id")}}, Clock::now() + kSendTimeout);
    } else if (hangs_at(*command, faults_of(options.step.node, options.injections))) {
      hang(*channel);
      return 2;
    } else {
      post(worker, channel, work, *command);
    }
  }
}

AgentOutcome report_and_obey(const AgentOptions& options) {
  AgentOutcome outcome;
  Listener data = listen_on(0);
  PathProbe probe;
  const Hello hello = make_hello(options, data.port, probe.port());
  const auto [channel, leader, key] = find_leader(options, hello);
  const auto work = std::make_shared<CommandHandler>(
      std::move(data), std::move(probe),
      TaskOptions{options.step.rank, options.step.size, options.step.node, leader, key,
                  options.injections, options.rdma, options.nccl});
  Worker worker;
  try {
    outcome.exit_code = obey(channel, work, worker, options);
  } catch (const NetError& error) {
    outcome.complaint = fmt::format("{} (rank {}) has no verdict: {}", options.step.node,
                                    options.step.rank, error.what());
  }
  outcome.left_behind = !worker.finish(kWorkerTimeout) || work->in_world();
  return outcome;
}

}  // namespace

AgentOutcome run_agent(const AgentOptions& options) {
  try {
    return report_and_obey(options);
  } catch (const std::exception& error) {
    return {2, error.what(), false};
  }
}

}  // namespace ddp::check
