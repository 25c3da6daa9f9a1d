// SPDX-License-Identifier: Apache-2.0
// Training in which ranks do not wait for each other, up to a bound. The parameters are divided
// into as many shards as there are ranks; each rank is the server of one shard and a worker on all
// of them. See docs/async.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/parameter_server/exchange.h"
#include "ddp_runtime/parameter_server/options.h"

namespace ddp::parameter_server {

class Service;

class ParameterServer {
 public:
  // Collective. `values` and `velocity` have the same length and are the same on all ranks.
  ParameterServer(comm::Group& group, std::span<const float> values,
                  std::span<const float> velocity, const ServerOptions& options);
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  // If close() was not called, the other ranks lose this one's shard: meant for cleanup after a
  // failure.
  ~ParameterServer();

  // Sends this rank's gradient of its next step, which must be its share of the mean over ranks,
  // and receives the parameters for the step after that. Waits only while this rank would be more
  // than `staleness` steps ahead of the slowest. An empty gradient is a step without one. Throws
  // PeerFailure if a rank has failed, BrokenCollective if one takes too long.
  void push_and_pull(std::span<const float> gradient, double learning_rate,
                     std::span<float> values);

  // Collective, when all ranks have pushed the same number of times: returns the parameters and the
  // velocity with all gradients applied, bitwise the same on all ranks.
  void settle(std::span<float> values, std::span<float> velocity);

  // Collective; no other function may be called afterwards.
  void close();

  // How far this rank was ahead of the slowest one when it began its steps.
  struct Lead {
    std::int64_t largest = 0;
    double mean = 0;
  };
  Lead lead() const noexcept;
  // Bytes that this rank sends and receives as a worker in one step.
  std::size_t bytes_per_step() const noexcept;

 private:
  std::int64_t exchange(const Exchange& exchange, std::optional<std::uint64_t> number);

  comm::Group& group_;
  std::int64_t staleness_;
  std::size_t size_;
  std::size_t shard_length_;
  std::vector<float> padded_gradient_;  // padded to whole shards
  std::vector<float> padded_values_;
  std::int64_t steps_ = 0;
  std::int64_t largest_lead_ = 0;
  std::int64_t leads_ = 0;  // sum of all leads
  RequestSlot slot_;
  std::unique_ptr<Service> service_;
};

}  // namespace ddp::parameter_server
