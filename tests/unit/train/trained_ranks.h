// SPDX-License-Identifier: Apache-2.0
// Runs of the trainer in which all ranks make the same model.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/train/trainer.h"
#include "tests/unit/modules.h"

namespace ddp::train {

// One rank, which a test may change before it trains. `Model` is a pointer to a module.
template <class Model>
struct RankToTrain {
  comm::Group& group;
  Model& model;
  TrainTask& task;
  TrainOptions& options;
};

struct TrainedRank {
  RunResult result;
  test::Values state;  // parameters and buffers; empty if ranks have parts of them
  std::string output;  // the lines of its log
};

struct NoChange {
  template <class Rank>
  void operator()(const Rank& /*rank*/) const {}
};

// One rank of a run. `make` returns a pointer to a module, and is called under the lock of the
// seed; `change` is called with a RankToTrain.
template <class Make, class Change = NoChange>
TrainedRank train_rank(comm::Group& group, TrainOptions options, const data::DataPair& data,
                       const Make& make, const Change& change = {}) {
  auto model = test::seeded(make);
  TrainedRank end;
  TrainTask task{.program = "test", .command = "test", .model_name = "net", .module = *model};
  task.data = data;
  if constexpr (requires(torch::Tensor x) { model->forward(x); }) {
    task.forward = [&model](const torch::Tensor& x) { return model->forward(x); };
  }
  task.log = [&end](const std::string& line) { end.output += line + "\n"; };
  RankToTrain<decltype(model)> rank{group, model, task, options};
  change(rank);
  end.result = Trainer(group, std::move(task), std::move(options)).fit();
  for (const auto& parameter : model->parameters()) {
    if (is_without_memory(parameter)) return end;
  }
  end.state = test::state_of(*model);
  return end;
}

// Ranks as threads. Rethrows the exception of a rank.
template <class Make, class Change = NoChange>
std::vector<TrainedRank> train_ranks(int ranks, const TrainOptions& options,
                                     const data::DataPair& data, const Make& make,
                                     const Change& change = {},
                                     const std::function<int(int rank)>& node_of = {}) {
  std::vector<TrainedRank> ends(static_cast<std::size_t>(ranks));
  const auto body = [&](comm::Group& group) {
    ends[static_cast<std::size_t>(group.rank())] = train_rank(group, options, data, make, change);
  };
  test::run_ranks(ranks, body, {}, node_of);
  return ends;
}

// [samples, channels, height, width], half of them bright.
inline data::DataPair random_images(std::vector<std::int64_t> sizes, std::int64_t classes = 2) {
  const auto inputs = torch::randn(sizes, torch::make_generator<torch::CPUGeneratorImpl>(7));
  const auto targets = inputs.mean({1, 2, 3}).gt(0).to(torch::kInt64);
  const auto data = std::make_shared<data::TensorDataset>(inputs, targets, classes);
  return {"images", data, data};
}

// For two classes.
inline torch::nn::Linear filled_layer() {
  torch::nn::Linear layer(4, 2);
  const torch::NoGradGuard no_grad;
  for (auto& p : layer->parameters()) p.fill_(0.5);
  return layer;
}

}  // namespace ddp::train
