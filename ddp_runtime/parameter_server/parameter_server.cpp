// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/parameter_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "ddp_runtime/parameter_server/service.h"

namespace ddp::parameter_server {
namespace {

constexpr char kName[] = "parameter server";

Shard make_shard(const comm::Group& group, std::span<const float> values,
                 std::span<const float> velocity, std::size_t length,
                 const ServerOptions& options) {
  const std::size_t first = static_cast<std::size_t>(group.rank()) * length;
  const auto part_of = [&](std::span<const float> all) {
    std::vector<float> part(length);
    const std::size_t begin = std::min(first, all.size());
    const auto own = all.subspan(begin, std::min(length, all.size() - begin));
    std::copy(own.begin(), own.end(), part.begin());
    return part;
  };
  const std::size_t decayed = options.decayed > first ? options.decayed - first : 0;
  return {MomentumSgd(part_of(values), part_of(velocity), options.momentum, options.weight_decay,
                      decayed),
          group.size(), options.staleness};
}

}  // namespace

ParameterServer::ParameterServer(comm::Group& group, std::span<const float> values,
                                 std::span<const float> velocity, const ServerOptions& options)
    : group_(group), staleness_(options.staleness), size_(values.size()) {
  if (values.size() != velocity.size() || options.staleness < 0) {
    throw std::invalid_argument("a parameter server needs a velocity for every value");
  }
  const auto ranks = static_cast<std::size_t>(group.size());
  shard_length_ = (size_ + ranks - 1) / ranks;
  padded_gradient_.resize(ranks * shard_length_);
  padded_values_.resize(ranks * shard_length_);
  service_ = std::make_unique<Service>(group.point_to_point_channel(kName),
                                       make_shard(group, values, velocity, shard_length_, options),
                                       shard_length_, slot_);
}

ParameterServer::~ParameterServer() = default;

// Numbered like a collective: the rank with the lowest number is the one that the others wait for.
std::int64_t ParameterServer::exchange(const Exchange& exchange,
                                       std::optional<std::uint64_t> number) {
  auto& recorder = group_.flight_recorder();
  const auto record = recorder.begin(
      number, fmt::format("{}: exchange after step {}", kName, steps_), "push and pull", kName);
  try {
    const std::int64_t slowest = slot_.request(exchange);
    recorder.end(record, false);
    return slowest;
  } catch (...) {
    recorder.end(record, true);
    throw;
  }
}

void ParameterServer::push_and_pull(std::span<const float> gradient, double learning_rate,
                                    std::span<float> values) {
  const bool has_gradient = !gradient.empty();
  if ((has_gradient && gradient.size() != size_) || values.size() != size_) {
    throw std::invalid_argument("a gradient must have a value for every parameter");
  }
  std::copy(gradient.begin(), gradient.end(), padded_gradient_.begin());
  ++steps_;
  const RequestType type =
      has_gradient ? RequestType::push_and_pull : RequestType::push_nothing_and_pull;
  const std::int64_t slowest = exchange(
      {{type, steps_, steps_ - staleness_, learning_rate}, padded_gradient_, padded_values_, {}},
      static_cast<std::uint64_t>(steps_));
  std::copy_n(padded_values_.begin(), size_, values.begin());
  largest_lead_ = std::max(largest_lead_, steps_ - slowest);
  leads_ += steps_ - slowest;
}

void ParameterServer::settle(std::span<float> values, std::span<float> velocity) {
  std::vector<float> own(shard_length_);
  exchange({{RequestType::pull, steps_, steps_, 0}, {}, padded_values_, own}, std::nullopt);
  std::copy_n(padded_values_.begin(), size_, values.begin());
  // No rank pushes again before all ranks have this answer: the next step comes after the gather.
  std::vector<float> all(padded_values_.size());
  group_.all_gather(comm::buffer_of(std::span(own)), comm::buffer_of(std::span(all)), "velocity")
      .wait();
  std::copy_n(all.begin(), size_, velocity.begin());
}

void ParameterServer::close() {
  exchange({{RequestType::shutdown, steps_, 0, 0}, {}, {}, {}}, std::nullopt);
}

ParameterServer::Lead ParameterServer::lead() const noexcept {
  const double mean = steps_ > 0 ? static_cast<double>(leads_) / static_cast<double>(steps_) : 0;
  return {largest_lead_, mean};
}

std::size_t ParameterServer::bytes_per_step() const noexcept {
  return 2 * sizeof(float) * (padded_values_.size() - shard_length_);
}

}  // namespace ddp::parameter_server
