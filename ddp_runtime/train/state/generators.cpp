// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "ddp_runtime/parallel/layers/module_device.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"
#include "ddp_runtime/train/state/generator_state.h"

namespace ddp::train {
namespace {

constexpr std::string_view kGenerators = "rng/";

std::string type_name(torch::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

std::string generator_name(int rank, torch::Device device) {
  return fmt::format("rng/rank-{}/{}", rank, type_name(device));
}

// Whether the array is the state of a generator of one of these devices, on any rank.
bool is_of(const std::vector<torch::Device>& devices, std::string_view array) {
  return std::any_of(devices.begin(), devices.end(), [&](const torch::Device& device) {
    return array.ends_with(fmt::format("/{}", type_name(device)));
  });
}

std::vector<torch::Device> generator_devices(const torch::nn::Module& module) {
  std::vector<torch::Device> devices{torch::Device(torch::kCPU)};
  const auto device = device_of(module);
  if (!device.is_cpu()) devices.push_back(device);
  return devices;
}

}  // namespace

Generators::Generators(comm::Group& group, const torch::nn::Module& module)
    : group_(group), devices_(generator_devices(module)) {}

void Generators::collect(std::vector<StateArray>& arrays) const {
  for (const auto& device : devices_) {
    const auto mine = generator_state(device);
    auto all = torch::empty({group_.size(), mine.numel()}, torch::kUInt8);
    group_.all_gather(buffer_of(mine), buffer_of(all), "generator states").wait();
    for (int rank = 0; rank < group_.size(); ++rank) {
      arrays.push_back({generator_name(rank, device), all[rank]});
    }
  }
}

void Generators::add_targets(const ckpt::Checkpoint& checkpoint, std::vector<ReadTarget>& targets) {
  loaded_.clear();
  if (devices_.empty()) return;
  for (const auto& device : devices_) {
    std::int64_t ranks = 0;
    while (checkpoint.find(generator_name(static_cast<int>(ranks), device)) != nullptr) ++ranks;
    const auto states = torch::zeros({ranks, generator_state(device).numel()}, torch::kUInt8);
    for (int rank = 0; rank < ranks; ++rank) {
      targets.push_back({{generator_name(rank, device), states[rank]}, {}});
    }
    loaded_.push_back(states);
  }
  // Those of a device on which this run does not train. Nothing continues them.
  for (const auto& array : checkpoint.arrays()) {
    if (!array.name.starts_with(kGenerators) || is_of(devices_, array.name)) continue;
    targets.push_back({{array.name, torch::empty(shape_of(array), torch::kUInt8)}, {}});
  }
}

// Collective. `loaded` is rank 0's: [ranks of the checkpoint, bytes].
void Generators::restore(torch::Device device, torch::Tensor loaded, std::uint64_t seed) const {
  std::int64_t ranks = group_.rank() == 0 ? loaded.size(0) : 0;
  group_.broadcast(comm::buffer_of(ranks), 0, "generator count").wait();
  if (group_.rank() != 0) {
    loaded = torch::empty({ranks, generator_state(device).numel()}, torch::kUInt8);
  }
  group_.broadcast(buffer_of(loaded), 0, "generator states").wait();
  if (group_.rank() < ranks) {
    set_generator_state(device, loaded[group_.rank()].clone());
  } else {
    seed_generator(device, seed);
  }
}

void Generators::distribute(std::uint64_t seed) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    restore(devices_[i], group_.rank() == 0 ? loaded_[i] : torch::Tensor(), seed);
  }
  loaded_.clear();
}

}  // namespace ddp::train
