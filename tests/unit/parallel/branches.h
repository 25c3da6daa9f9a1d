// SPDX-License-Identifier: Apache-2.0
// A small model with optional parts, and helpers to test whole steps with it.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "tests/unit/error_of.h"
#include "tests/unit/modules.h"

namespace ddp::test {

// Three branches; the caller decides which of them to use.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  torch::Tensor forward(const torch::Tensor& x, const std::string& used) {
    torch::Tensor sum = torch::zeros({x.size(0), 3}, x.options());
    if (used.find('a') != std::string::npos) sum = sum + a(x);
    if (used.find('b') != std::string::npos) sum = sum + b(x);
    if (used.find('c') != std::string::npos) sum = sum + c(x);
    return sum;
  }
  torch::nn::Linear a{4, 3};
  torch::nn::Linear b{4, 3};
  torch::nn::Linear c{4, 3};
};
TORCH_MODULE(Branches);

inline Branches make_branches() {
  return seeded([] { return Branches(); });
}

inline torch::Tensor input_of(int rank) {
  return on_test_device(torch::arange(8, torch::kFloat32).view({2, 4}) * 0.1 + rank);
}

inline torch::Tensor loss_of(const torch::Tensor& output) {
  return output.pow(2).mean();
}

inline DataParallelOptions small_buckets() {
  DataParallelOptions options;
  options.buckets = {1, 1};
  return options;
}

// Copies of the gradients on the CPU by name, excluding undefined ones.
inline std::map<std::string, torch::Tensor> gradients_of(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& p : module.named_parameters()) {
    if (p.value().grad().defined()) gradients[p.key()] = p.value().grad().cpu().clone();
  }
  return gradients;
}

inline void expect_close(const std::map<std::string, torch::Tensor>& a,
                         const std::map<std::string, torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, gradient] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(torch::allclose(gradient, b.at(name), 1e-5, 1e-7)) << name;
  }
}

// Returns the error that ranks get when they run `body`.
inline std::string error_of_ranks(int ranks, const std::function<void(comm::Group&)>& body) {
  return error_of(
      [&] { test::run_ranks(ranks, body, {.limits = {.timeout = std::chrono::seconds(10)}}); });
}
inline std::string error_of_three_ranks(const std::function<void(comm::Group&)>& body) {
  return error_of_ranks(3, body);
}

// Runs `body` on three ranks, each of which must throw the same text; returns it.
inline std::string error_on_each_of_three_ranks(const std::function<void(comm::Group&)>& body) {
  std::vector<std::string> texts(3);
  error_of_three_ranks([&](comm::Group& group) {
    texts[static_cast<std::size_t>(group.rank())] = error_of([&] { body(group); });
    group.barrier().wait();  // keeps every rank here until all have thrown
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);
  return texts[0];
}

}  // namespace ddp::test
