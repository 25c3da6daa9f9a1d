// What the trainer needs of the models that come with the project. A model of your own need not be
// one: the trainer takes any torch::nn::Module and a function.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddp::models {

class Model : public torch::nn::Module {
 public:
  // inputs [n, ...] to scores (logits) [n, classes].
  virtual torch::Tensor forward(const torch::Tensor& inputs) = 0;
};

struct ModelOptions {
  std::string name = "mlp";         // mlp | mnist-cnn
  std::vector<std::int64_t> input;  // shape of one sample
  std::int64_t classes = 10;
  std::int64_t width = 0;   // 0: the model's own default
  std::int64_t layers = 0;  // 0: the model's own default
};

// Throws UsageError for an unknown name or options the model cannot take.
std::shared_ptr<Model> make_model(const ModelOptions& options);

// The number of values in all parameters.
std::int64_t parameter_count(const torch::nn::Module& module);

}  // namespace ddp::models
