// SPDX-License-Identifier: Apache-2.0
// A task of a check that consists only of a connection to the leader: the test receives and answers
// on its behalf.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/check/net/step/handshake.h"

namespace ddp::check {

class Puppet {
 public:
  Puppet(std::uint16_t port, int rank, const std::string& identity = "test",
         const std::string& program = "ddp-check test", const std::string& node = "",
         const comm::StepSecret& secret = {})
      : channel_(connect_to("127.0.0.1", port, Clock::now() + std::chrono::seconds(120))) {
    Hello hello;
    hello.program = program;
    hello.identity = identity;
    hello.rank = rank;
    hello.node = node.empty() ? fmt::format("n{}", rank) : node;
    introduce(channel_, hello, secret, Clock::now() + std::chrono::seconds(120));
    channel_.send(to_message(hello), Clock::now() + std::chrono::seconds(120));
  }
  ControlChannel& channel() { return channel_; }
  nlohmann::json receive() {
    return channel_.receive(Clock::now() + std::chrono::seconds(120)).value();
  }
  void answer(const nlohmann::json& message) {
    channel_.send(message, Clock::now() + std::chrono::seconds(120));
  }

 private:
  ControlChannel channel_;
};

}  // namespace ddp::check
