// SPDX-License-Identifier: Apache-2.0
#include "tests/interop/parity/optimizers.h"

#include <tuple>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/train/model/optimizer.h"

namespace parity {
namespace {

using nlohmann::json;
using Tensors = std::vector<torch::Tensor>;

torch::optim::SGDOptions sgd_options(const json& o) {
  return torch::optim::SGDOptions(o.at("lr"))
      .momentum(o.value("momentum", 0.0))
      .dampening(o.value("dampening", 0.0))
      .weight_decay(o.value("weight_decay", 0.0))
      .nesterov(o.value("nesterov", false));
}

template <class Options>
Options adam_options(const json& o) {
  const auto betas = o.value("betas", std::vector<double>{0.9, 0.999});
  return Options(o.at("lr").get<double>())
      .betas(std::tuple(betas.at(0), betas.at(1)))
      .eps(o.value("eps", 1e-8))
      .weight_decay(o.value("weight_decay", 0.0))
      .amsgrad(o.value("amsgrad", false));
}

torch::optim::RMSpropOptions rmsprop_options(const json& o) {
  return torch::optim::RMSpropOptions(o.at("lr"))
      .alpha(o.value("alpha", 0.99))
      .eps(o.value("eps", 1e-8))
      .weight_decay(o.value("weight_decay", 0.0))
      .momentum(o.value("momentum", 0.0))
      .centered(o.value("centered", false));
}

torch::optim::AdagradOptions adagrad_options(const json& o) {
  return torch::optim::AdagradOptions(o.at("lr"))
      .lr_decay(o.value("lr_decay", 0.0))
      .weight_decay(o.value("weight_decay", 0.0))
      .eps(o.value("eps", 1e-10));
}

// The optimizer's own options are its class's defaults, for the reason in
// train/model/optimizer.cpp.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> over(const Tensors& parameters, const Options& options,
                                              double rate_of_biases) {
  Tensors matrices;
  Tensors biases;
  for (const auto& p : parameters) (p.dim() > 1 ? matrices : biases).push_back(p);
  auto of_biases = options;
  of_biases.weight_decay(0).lr(options.lr() * rate_of_biases);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<Options>(options));
  groups.emplace_back(biases, std::make_unique<Options>(of_biases));
  return std::make_unique<Optimizer>(std::move(groups), Options(options.lr()));
}

template <class Ours, class Libtorchs, class Options>
std::unique_ptr<torch::optim::Optimizer> of(Library library, const Tensors& parameters,
                                            const Options& options, double rate_of_biases) {
  return library == Library::ours ? over<Ours>(parameters, options, rate_of_biases)
                                  : over<Libtorchs>(parameters, options, rate_of_biases);
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Case& run, Library library,
                                                        const torch::nn::Module& module,
                                                        const Tensors& parameters) {
  namespace theirs = torch::optim;
  namespace ours = ddp::optim;
  const auto& o = run.options;
  if (run.like_ddp_train && library == Library::ours) {
    return ddp::train::make_optimizer(module, {.name = run.optimizer,
                                               .learning_rate = o.at("lr"),
                                               .momentum = o.value("momentum", 0.0),
                                               .weight_decay = o.at("weight_decay")});
  }
  const double rate = run.like_ddp_train ? 1 : 2;
  if (run.optimizer == "sgd") {
    return of<ours::SGD, theirs::SGD>(library, parameters, sgd_options(o), rate);
  }
  if (run.optimizer == "adam") {
    return of<ours::Adam, theirs::Adam>(library, parameters, adam_options<theirs::AdamOptions>(o),
                                        rate);
  }
  if (run.optimizer == "adamw") {
    return of<ours::AdamW, theirs::AdamW>(library, parameters,
                                          adam_options<theirs::AdamWOptions>(o), rate);
  }
  if (run.optimizer == "rmsprop") {
    return over<theirs::RMSprop>(parameters, rmsprop_options(o), rate);
  }
  if (run.optimizer == "adagrad") {
    return over<theirs::Adagrad>(parameters, adagrad_options(o), rate);
  }
  throw ddp::UsageError("unknown optimizer " + run.optimizer);
}

}  // namespace parity
