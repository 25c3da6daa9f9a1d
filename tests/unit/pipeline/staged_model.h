// SPDX-License-Identifier: Apache-2.0
// A model in stages, and the same in one process, to test pipelines.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/pipeline/pipeline.h"
#include "tests/unit/test_device.h"

namespace ddp::pipeline::test {

inline constexpr std::int64_t kTokens = 11;
inline constexpr std::int64_t kWidth = 6;

// On GPUs, a rank sends to and receives from both neighbors, and averages, at the same time.
class PipelineTest : public testing::Test {
 protected:
  void SetUp() override { ddp::test::allow_collectives_at_once(8); }
};

// The first part turns tokens [..., n] into vectors [..., n, width], the last one vectors into
// scores [..., n, tokens].
struct PartImpl : torch::nn::Module {
  PartImpl(bool first, bool last) : is_first(first), is_last(last) {
    if (first) register_module("tokens", tokens);
    register_module("norm", norm);
    register_module("expand", expand);
    register_module("contract", contract);
    if (last) register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    auto x = is_first ? tokens(input) : input;
    x = x + contract(torch::dropout(torch::gelu(expand(norm(x))), dropout, is_training()));
    return is_last ? head(x) : x;
  }

  bool is_first;
  bool is_last;
  double dropout = 0;
  torch::nn::Embedding tokens{kTokens, kWidth};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kWidth})};
  torch::nn::Linear expand{kWidth, 9};
  torch::nn::Linear contract{9, kWidth};
  torch::nn::Linear head{torch::nn::LinearOptions(kWidth, kTokens).bias(false)};
};

using Part = std::shared_ptr<PartImpl>;
using Parts = std::vector<Part>;
using Gradients = std::map<std::string, torch::Tensor>;

inline std::mutex& mutex_of_parts() {
  static std::mutex mutex;
  return mutex;
}

// The same values on all ranks, whose threads share the generator.
inline Parts make_parts(int stages) {
  const std::lock_guard lock(mutex_of_parts());
  torch::manual_seed(7);
  Parts parts;
  for (int i = 0; i < stages; ++i) {
    parts.push_back(std::make_shared<PartImpl>(i == 0, i == stages - 1));
    ddp::test::move_to_test_device(*parts.back());
  }
  return parts;
}

inline std::vector<Stage> stages_of(const Parts& parts) {
  std::vector<Stage> stages;
  for (const auto& part : parts) stages.push_back(make_stage(part));
  return stages;
}

inline MicroBatch micro_batch_of(int number, std::vector<std::int64_t> shape = {5}) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  const auto numbers = torch::arange(count, torch::kInt64) * 7 + 3 * number;
  return {.input = ddp::test::on_test_device((numbers % kTokens).view(shape)),
          .target = ddp::test::on_test_device(((numbers * 5 + 1) % kTokens).view(shape))};
}

inline std::vector<MicroBatch> micro_batches_of(int count, int first = 0) {
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(micro_batch_of(first + i));
  return batches;
}

inline torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(scores.view({-1, kTokens}), target.view(-1));
}

inline torch::Tensor through(const Parts& parts, torch::Tensor x) {
  for (const auto& part : parts) x = part->forward(x);
  return x;
}

// What one process does: returns the losses.
inline std::vector<torch::Tensor> accumulate(const Parts& parts,
                                             const std::vector<MicroBatch>& batches,
                                             int replicas = 1) {
  std::vector<torch::Tensor> losses;
  const double share = 1.0 / (static_cast<double>(replicas) * static_cast<double>(batches.size()));
  for (const auto& batch : batches) {
    const auto loss = loss_of(through(parts, batch.input), batch.target);
    loss.backward(torch::full_like(loss, share * batch.weight));
    losses.push_back(loss.detach().cpu());
  }
  return losses;
}

inline std::vector<torch::Tensor> parameters_of(const Parts& parts) {
  std::vector<torch::Tensor> all;
  for (const auto& part : parts) {
    for (auto& parameter : part->parameters()) all.push_back(parameter);
  }
  return all;
}

// Copies on the CPU, of all parts or of those of a rank, named as by Pipeline::named_parameters().
inline Gradients gradients_of(const Parts& parts) {
  Gradients gradients;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const auto& p : parts[i]->named_parameters()) {
      if (!p.value().grad().defined()) continue;
      gradients[fmt::format("stages.{}.{}", i, p.key())] = p.value().grad().cpu().clone();
    }
  }
  return gradients;
}

inline Gradients gradients_of(const Pipeline& pipe) {
  Gradients gradients;
  for (const auto& [name, tensor] : pipe.named_parameters()) {
    if (tensor.grad().defined()) gradients[name] = tensor.grad().cpu().clone();
  }
  return gradients;
}

// Whether `gradients` are some of `all`, bit by bit.
inline void expect_same_bits(const Gradients& gradients, const Gradients& all,
                             const std::string& what) {
  for (const auto& [name, gradient] : gradients) {
    ASSERT_TRUE(all.contains(name)) << what << ": " << name;
    EXPECT_TRUE(torch::equal(gradient, all.at(name))) << what << ": " << name;
  }
}

inline void expect_same_bits(const std::vector<torch::Tensor>& mine,
                             const std::vector<torch::Tensor>& expected, const std::string& what) {
  ASSERT_EQ(mine.size(), expected.size()) << what;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(torch::equal(mine[i].detach().cpu(), expected[i].detach().cpu()))
        << what << ": " << i;
  }
}

}  // namespace ddp::pipeline::test
