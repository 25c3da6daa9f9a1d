// SPDX-License-Identifier: Apache-2.0
// Training in which a rank waits for the others only if it is too far ahead. The parameters are
// divided into one shard per rank; each rank is the server of one shard and a worker on all of
// them. See docs/async.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
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
  // If close() was not called, the other ranks lose this rank's shard: meant for cleanup after a
  // failure.
  ~ParameterServer();

  // Sends this rank's gradient of its next step, which must be its share of the mean over ranks,
  // and receives the parameters for the step after that. Waits only while this rank would be more
  // than `staleness` steps ahead of the slowest rank. An empty gradient means a step without a
  // gradient. Throws PeerFailure if a rank has failed, BrokenCollective if a rank takes too long.
  void push_and_pull(std::span<const float> gradient, double learning_rate,
                     std::span<float> values);

  // Collective, after the same number of pushes on all ranks: returns the parameters and the
  // velocity with all gradients applied, bitwise the same on all ranks.
  void settle(std::span<float> values, std::span<float> velocity);

  // Collective; no other function may be called afterwards.
  void close();

  // How far this rank was ahead of the slowest rank at the beginning of its steps.
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
