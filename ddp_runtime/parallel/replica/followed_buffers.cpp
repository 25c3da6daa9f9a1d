// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/followed_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddp {
namespace {

// Without their full names, which would take most of the time.
std::vector<torch::Tensor> buffers_in(const torch::nn::Module& module) {
  std::vector<torch::Tensor> buffers;
  module.apply([&buffers](const torch::nn::Module& part) {
    for (const auto& item : part.named_buffers(/*recurse=*/false)) buffers.push_back(item.value());
  });
  return buffers;
}

bool are_same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& x, const torch::Tensor& y) { return x.is_same(y); });
}

bool has(const std::vector<NamedTensor>& buffers, const NamedTensor& buffer) {
  return std::any_of(buffers.begin(), buffers.end(),
                     [&](const NamedTensor& b) { return b.tensor.is_same(buffer.tensor); });
}

// The first one: all other differences probably have the same cause.
std::string difference(const std::vector<NamedTensor>& before,
                       const std::vector<NamedTensor>& now) {
  for (const auto& buffer : now) {
    if (!has(before, buffer)) return fmt::format("'{}' was registered", buffer.name);
  }
  for (const auto& buffer : before) {
    if (!has(now, buffer)) return fmt::format("'{}' was removed", buffer.name);
  }
  return "their order changed";
}

}  // namespace

FollowedBuffers::FollowedBuffers(const torch::nn::Module& module, const IgnoredTensors& ignored)
    : module_(module),
      ignored_(ignored),
      seen_(buffers_in(module)),
      followed_(ignored.removed_from(named_buffers(module))) {}

std::optional<std::string> FollowedBuffers::update() {
  auto now = buffers_in(module_);
  if (are_same(now, seen_)) return std::nullopt;
  seen_ = std::move(now);
  const auto before = std::exchange(followed_, ignored_.removed_from(named_buffers(module_)));
  return difference(before, followed_);
}

void FollowedBuffers::broadcast(comm::Group& group) const {
  broadcast_from_leader(group, followed_);
}

}  // namespace ddp
