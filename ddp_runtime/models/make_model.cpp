#include <fmt/format.h>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/models/builtin.h"

namespace ddp::models {

std::shared_ptr<Model> make_model(const ModelOptions& options) {
  if (options.name == "mlp") return make_mlp(options);
  if (options.name == "mnist-cnn") return make_mnist_cnn(options);
  throw UsageError(fmt::format("unknown model '{}'; use mlp or mnist-cnn", options.name));
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace ddp::models
