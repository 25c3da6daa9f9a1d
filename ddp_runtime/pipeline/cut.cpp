// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/pipeline/cut.h"

#include <string>
#include <utility>

namespace ddp::pipeline {
namespace {

double parameters_in(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return static_cast<double>(count);
}

}  // namespace

std::vector<Stage> cut(const torch::nn::Sequential& model, const Balance& balance) {
  require_fitting(balance, static_cast<int>(balance.size()), static_cast<int>(model->size()));
  std::vector<Stage> stages;
  auto next = model->begin();
  std::size_t number = 0;
  for (const int count : balance) {
    torch::nn::Sequential stage;
    for (int i = 0; i < count; ++i) stage->push_back(std::to_string(number++), *next++);
    stages.push_back(make_stage(stage));
  }
  return stages;
}

std::vector<Stage> cut(const torch::nn::Sequential& model, int stages) {
  std::vector<double> costs;
  for (const auto& module : *model) costs.push_back(parameters_in(*module.ptr()));
  return cut(model, balanced(costs, stages));
}

}  // namespace ddp::pipeline
