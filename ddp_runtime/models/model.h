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

// One of the parts into which a model can be cut. The result of one is the input of the next, so
// all of them after one another compute what the model's forward() does, bit by bit.
struct Piece {
  std::string name;                                            // of its first module: "blocks.3"
  std::vector<std::shared_ptr<torch::nn::Module>> modules;     // that have its parameters
  std::function<torch::Tensor(const torch::Tensor&)> forward;  // leaves its argument as it is
};

class Model : public torch::nn::Module {
 public:
  // Maps inputs [n, ...] to scores (logits) [n, classes]; in a sequence model, token ids [n,
  // context] to scores [n, context, classes].
  virtual torch::Tensor forward(const torch::Tensor& inputs) = 0;
  // The modules that it calls as units of a ShardedDataParallel: see ShardOptions::units.
  virtual std::vector<std::string> units() const { return {}; }
  // Its pieces in their order, for a pipeline. Pieces may have a module in common, such as that of
  // the weight of gpt's first and last layer. Empty if it cannot be cut.
  virtual std::vector<Piece> pieces() const { return {}; }
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
