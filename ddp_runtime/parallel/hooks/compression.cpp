// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/hooks/compression.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>

#include "base/errors.h"
#include "ddp_runtime/parallel/hooks/power_sgd.h"

namespace ddp::hooks {
namespace {

// Multiplying by a power of two does not round.
double power_of_two_below_root(int ranks) {
  return std::exp2(std::floor(std::log2(static_cast<double>(ranks)) / 2));
}

// `factor` multiplies the gradients before they are sent, and is undone afterwards.
HookTask in_type(GradientBucket& bucket, torch::ScalarType type, double factor) {
  const auto rounded = (factor == 1 ? bucket.tensor() : bucket.tensor().mul(factor)).to(type);
  co_await bucket.all_reduce(rounded);
  bucket.tensor().copy_(rounded);
  // cppcheck-suppress missingReturn  ; a coroutine
  if (factor != 1) bucket.tensor().mul_(1 / factor);
}

[[noreturn]] void throw_unknown(std::string_view name) {
  throw UsageError(fmt::format(
      "--comm-hook must be fp16, bf16, bf16-fp32, powersgd, powersgd:RANK (1 to 64), noop or off, "
      "not '{}'",
      name));
}

CommHook power_sgd(std::string_view name, std::string_view rank) {
  PowerSgdOptions options;
  if (!rank.empty()) {
    const auto* const end = rank.data() + rank.size();
    const auto [rest, error] = std::from_chars(rank.data(), end, options.rank);
    if (error != std::errc() || rest != end || options.rank < 1 || options.rank > 64) {
      throw_unknown(name);
    }
  }
  return [state = std::make_shared<PowerSgd>(options)](GradientBucket& bucket) {
    return state->reduce(bucket);
  };
}

}  // namespace

HookTask fp16(GradientBucket& bucket) {
  return in_type(bucket, torch::kHalf, power_of_two_below_root(bucket.group().size()));
}

HookTask bf16(GradientBucket& bucket) {
  return in_type(bucket, torch::kBFloat16, 1);
}

HookTask bf16_summed_in_fp32(GradientBucket& bucket) {
  const auto& gradients = bucket.tensor();
  const std::int64_t elements = gradients.numel();
  const std::int64_t ranks = bucket.group().size();
  const std::int64_t part = (elements + ranks - 1) / ranks;
  const auto rounded = torch::zeros({ranks * part}, gradients.options().dtype(torch::kBFloat16));
  rounded.narrow(0, 0, elements).copy_(gradients);
  const auto received = torch::empty_like(rounded);
  co_await bucket.all_to_all(received, rounded);
  const auto sum = received.view({ranks, part}).to(torch::kFloat32).sum(0).to(torch::kBFloat16);
  co_await bucket.all_gather(rounded, sum);
  // cppcheck-suppress missingReturn  ; a coroutine
  gradients.copy_(rounded.narrow(0, 0, elements));
}

HookTask none(GradientBucket&) {
  co_return;
}

CommHook by_name(std::string_view name) {
  constexpr std::string_view kPowerSgd = "powersgd";
  if (name.empty() || name == "off") return {};
  if (name == "fp16") return fp16;
  if (name == "bf16") return bf16;
  if (name == "bf16-fp32") return bf16_summed_in_fp32;
  if (name == "noop") return none;
  if (name == kPowerSgd) return power_sgd(name, {});
  if (name.starts_with("powersgd:") && name.size() > kPowerSgd.size() + 1) {
    return power_sgd(name, name.substr(kPowerSgd.size() + 1));
  }
  throw_unknown(name);
}

}  // namespace ddp::hooks
