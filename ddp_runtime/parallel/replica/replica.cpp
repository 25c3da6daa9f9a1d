// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/replica.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

// Smaller tensors are packed together; larger ones are sent one by one and in place, without a
// copy.
constexpr std::int64_t kMessageBytes = std::int64_t{1} << 20;

std::string describe(const NamedTensor& t) {
  return fmt::format("{} {} [{}] strides [{}]{}", t.name, c10::toString(t.tensor.scalar_type()),
                     fmt::join(t.tensor.sizes(), ", "), fmt::join(t.tensor.strides(), ", "),
                     t.tensor.requires_grad() ? "" : ", frozen");
}

std::vector<std::string> describe(std::span<const NamedTensor> tensors) {
  std::vector<std::string> lines;
  lines.reserve(tensors.size());
  for (const auto& tensor : tensors) lines.push_back(describe(tensor));
  return lines;
}

// FNV-1a, of whose 64 bits the sign is left out.
std::int64_t hash_of(std::span<const std::string> lines) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto& line : lines) {
    for (const char c : line + "\n") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
  }
  return static_cast<std::int64_t>(hash >> 1);
}

[[noreturn]] void throw_first_difference(const std::vector<std::string>& leader,
                                         const std::vector<std::string>& other,
                                         const comm::Group& group, int rank) {
  const std::size_t common = std::min(leader.size(), other.size());
  std::size_t at = 0;
  while (at < common && leader[at] == other[at]) ++at;
  const auto entry = [at](const std::vector<std::string>& lines) {
    return at < lines.size() ? fmt::format("'{}'", lines[at]) : std::string("missing");
  };
  throw RuntimeError(fmt::format(
      "the model of rank {0} differs from that of rank {1}: tensor {2} is {3} on rank {1} and {4} "
      "on rank {0} ({5} and {6} tensors in total); all ranks must build the same model",
      group.world_rank(rank), group.world_rank(0), at, entry(leader), entry(other), leader.size(),
      other.size()));
}

std::vector<NamedTensor> defined_once(
    const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  std::vector<NamedTensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : tensors) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) {
      continue;
    }
    result.push_back({item.key(), item.value()});
  }
  return result;
}

void broadcast_together(comm::Group& group, std::span<const torch::Tensor> tensors) {
  std::vector<torch::Tensor> flattened;
  for (const auto& tensor : tensors) flattened.push_back(tensor.reshape({-1}));
  const auto flat = torch::cat(flattened);
  group.broadcast(bytes_of(flat), 0, "model state").wait();
  std::int64_t offset = 0;
  for (const auto& tensor : tensors) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

// Each rank may decide independently whether to use a tensor's memory in place, because the message
// is the same either way.
void broadcast_alone(comm::Group& group, const torch::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  group.broadcast(bytes_of(whole), 0, "model state").wait();
  if (!whole.is_same(tensor)) {
    tensor.copy_(whole);
  } else if (optim::MasterWeights::are_for(tensor)) {
    tensor.unsafeGetTensorImpl()->bump_version();  // or the masters would not notice on a device
  }
}

}  // namespace

std::vector<NamedTensor> named_parameters(const torch::nn::Module& module) {
  return defined_once(module.named_parameters());
}

std::vector<NamedTensor> named_buffers(const torch::nn::Module& module) {
  return defined_once(module.named_buffers());
}

std::int64_t fingerprint_of(std::span<const NamedTensor> tensors) {
  return hash_of(describe(tensors));
}

void require_same_model(comm::Group& group, std::span<const NamedTensor> tensors) {
  const auto mine = describe(tensors);
  std::int64_t hash = hash_of(mine);
  std::vector<std::int64_t> hashes(static_cast<std::size_t>(group.size()));
  group.all_gather(comm::buffer_of(hash), comm::buffer_of(std::span(hashes)), "model hash").wait();
  const auto differing = std::find_if(hashes.begin(), hashes.end(),
                                      [&](std::int64_t h) { return h != hashes.front(); });
  if (differing == hashes.end()) return;

  const int rank = static_cast<int>(differing - hashes.begin());
  const std::string text = nlohmann::json(mine).dump();
  const auto of_leader = nlohmann::json::parse(group.broadcast_text(text, 0));
  const auto of_other = nlohmann::json::parse(group.broadcast_text(text, rank));
  throw_first_difference(of_leader.get<std::vector<std::string>>(),
                         of_other.get<std::vector<std::string>>(), group, rank);
}

void broadcast_from_leader(comm::Group& group, std::span<const NamedTensor> tensors) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::map<torch::ScalarType, std::vector<torch::Tensor>> pending;
  std::map<torch::ScalarType, std::int64_t> bytes;
  for (const auto& named : tensors) {
    const auto tensor = named.tensor.detach();
    if (tensor.numel() == 0) continue;
    const auto size = static_cast<std::int64_t>(tensor.nbytes());
    if (size >= kMessageBytes) {
      broadcast_alone(group, tensor);
      continue;
    }
    const auto type = tensor.scalar_type();
    pending[type].push_back(tensor);
    bytes[type] += size;
    if (bytes[type] < kMessageBytes) continue;
    broadcast_together(group, pending[type]);
    pending[type].clear();
    bytes[type] = 0;
  }
  for (const auto& [type, rest] : pending) {
    if (!rest.empty()) broadcast_together(group, rest);
  }
}

}  // namespace ddp
