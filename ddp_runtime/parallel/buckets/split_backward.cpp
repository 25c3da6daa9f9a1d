// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/split_backward.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace ddp {
namespace {

c10::intrusive_ptr<PostponedGradients>& postponed_here() {
  thread_local c10::intrusive_ptr<PostponedGradients> here;
  return here;
}

using torch::autograd::Edge;
using torch::autograd::impl::gradient_edge;

// A layer's inner graph. Its output is not kept: the graph outside decides how long it is needed.
struct SplitLayer : torch::CustomClassHolder {
  Edge input;  // invalid if the input needs no gradient
  Edge output;
  torch::Tensor result;  // until the graph outside has it
  std::vector<torch::Tensor> parameters;
  c10::intrusive_ptr<PostponedGradients> postponed;
};

class SplitNode : public torch::autograd::Function<SplitNode> {
 public:
  // `anchor` requires a gradient, so that backward comes here even if the input does not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& /*input*/, const torch::Tensor& /*anchor*/,
                               const c10::intrusive_ptr<SplitLayer>& layer) {
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return std::exchange(layer->result, {}).detach();
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto layer =
        c10::static_intrusive_pointer_cast<SplitLayer>(context->saved_data["layer"].toCapsule());
    layer->postponed->add(layer->output, gradients[0], layer->parameters);
    torch::autograd::tensor_list of_inputs(3);
    if (!layer->input.is_valid()) return of_inputs;
    of_inputs[0] = torch::autograd::Engine::get_default_engine().execute(
        {layer->output}, {gradients[0]}, /*keep_graph=*/true, /*create_graph=*/false,
        /*accumulate_grad=*/false, {layer->input})[0];
    return of_inputs;
  }
};

}  // namespace

void PostponedGradients::add(const Edge& start, const torch::Tensor& gradient,
                             const std::vector<torch::Tensor>& parameters) {
  const std::lock_guard lock(mutex_);
  starts_.push_back(start);
  gradients_.push_back(gradient);
  for (const auto& parameter : parameters) {
    const bool is_known =
        std::any_of(parameters_.begin(), parameters_.end(),
                    [&](const torch::Tensor& known) { return known.is_same(parameter); });
    if (!is_known) parameters_.push_back(parameter);
  }
}

void PostponedGradients::run() {
  std::vector<Edge> starts;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> parameters;
  {
    const std::lock_guard lock(mutex_);
    starts.swap(starts_);
    gradients.swap(gradients_);
    parameters.swap(parameters_);
  }
  if (starts.empty()) return;
  std::vector<Edge> accumulators;
  for (const auto& parameter : parameters) accumulators.push_back(gradient_edge(parameter));
  torch::autograd::Engine::get_default_engine().execute(starts, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true, accumulators);
}

PostponeGradients::PostponeGradients(c10::intrusive_ptr<PostponedGradients> gradients)
    : before_(std::exchange(postponed_here(), std::move(gradients))) {}

PostponeGradients::~PostponeGradients() {
  postponed_here() = std::move(before_);
}

torch::Tensor split_backward(const std::function<torch::Tensor(const torch::Tensor&)>& layer,
                             const torch::Tensor& input,
                             const std::vector<torch::Tensor>& parameters) {
  auto split = c10::make_intrusive<SplitLayer>();
  split->postponed = postponed_here();
  for (const auto& parameter : parameters) {
    if (parameter.defined() && parameter.requires_grad()) split->parameters.push_back(parameter);
  }
  if (!split->postponed || split->parameters.empty() || !torch::GradMode::is_enabled()) {
    return layer(input);
  }
  const auto inner = input.detach().requires_grad_(input.requires_grad());
  if (inner.requires_grad()) split->input = gradient_edge(inner);
  split->result = layer(inner);
  split->output = gradient_edge(split->result);
  return SplitNode::apply(input, torch::zeros({}).requires_grad_(), split);
}

torch::Tensor split_linear(const torch::nn::LinearImpl& layer, const torch::Tensor& input) {
  return split_backward(
      [&layer](const torch::Tensor& x) { return at::linear(x, layer.weight, layer.bias); }, input,
      {layer.weight, layer.bias});
}

}  // namespace ddp
