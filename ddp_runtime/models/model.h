// SPDX-License-Identifier: Apache-2.0
// The interface between the trainer and the built-in models. Other models need not implement it:
// the trainer takes any torch::nn::Module and a function.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::models {

class Model : public torch::nn::Module {
 public:
  // Maps inputs [n, ...] to scores (logits) [n, classes]; in a sequence model, token ids [n,
  // context] to scores [n, context, classes].
  virtual torch::Tensor forward(const torch::Tensor& inputs) = 0;
  // The modules that it calls as units of a ShardedDataParallel: see ShardOptions::units.
  virtual std::vector<std::string> units() const { return {}; }
};

constexpr std::int64_t kGptHeads = 4;  // the default

struct ModelOptions {
  std::string name = "mlp";         // see model_names()
  std::vector<std::int64_t> input;  // shape of one sample
  std::int64_t classes = 10;
  std::int64_t width = 0;  // 0: the model's default, here and below
  std::int64_t layers = 0;
  std::int64_t heads = 0;               // gpt
  bool tokens = false;                  // a sample is a sequence of token ids
  bool checkpoint_activations = false;  // gpt: backward recomputes each block
  // Called for each of units(), when it has its initial values and before the next one is built.
  std::function<void(torch::nn::Module& unit)> built = [](torch::nn::Module&) {};
};

// Throws UsageError for an unknown name, options the model does not support, or data it cannot use.
std::shared_ptr<Model> make_model(const ModelOptions& options);

// "mlp, mnist-cnn, ... or gpt".
std::string model_names();

// The number of values in all parameters; shared ones count once.
std::int64_t parameter_count(const torch::nn::Module& module);

}  // namespace ddp::models
