// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/option_limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

std::string refusal_of(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  change(options);
  return error_of([&] { require_within_limits(options); });
}

TEST(OptionLimits, NameTheOption) {
  EXPECT_EQ(refusal_of([](auto& o) { o.steps = kLargest; }),
            "the option steps of the training is 9223372036854775807; use a number from 0 to "
            "1000000000000000");
  const std::pair<const char*, std::function<void(TrainOptions&)>> cases[] = {
      {"epochs", [](auto& o) { o.epochs = kLargest; }},
      {"epochs", [](auto& o) { o.epochs = -1; }},
      {"batch", [](auto& o) { o.batch = kLargest; }},
      {"micro_batches", [](auto& o) { o.micro_batches = kLargest; }},
      {"micro_batches", [](auto& o) { o.micro_batches = 0; }},
      {"warmup_steps", [](auto& o) { o.warmup_steps = kLargest; }},
      {"staleness", [](auto& o) { o.staleness = kLargest; }},
      {"loader_threads", [](auto& o) { o.loader_threads = 100000; }},
      {"decay_epochs", [](auto& o) {
         o.schedule = Schedule::step;
         o.decay_epochs = 0;
       }}};
  for (const auto& [name, change] : cases) {
    const auto text = refusal_of(change);
    EXPECT_EQ(text.substr(0, text.find(" of ")), std::string("the option ") + name) << text;
  }
}

TEST(OptionLimits, AcceptWhatMakesSense) {
  const std::function<void(TrainOptions&)> cases[] = {
      [](auto&) {},
      [](auto& o) { o.steps = kMaxSteps; },
      [](auto& o) { o.epochs = kMaxEpochs; },
      [](auto& o) { o.seed = std::numeric_limits<std::uint64_t>::max(); },
      [](auto& o) { o.decay_epochs = 0; },
      [](auto& o) { o.loader_threads = kMaxLoaderThreads; }};
  for (const auto& change : cases) EXPECT_EQ(refusal_of(change), "");
}

}  // namespace
}  // namespace ddp::train
