// SPDX-License-Identifier: Apache-2.0
// Backward of a layer in two parts: the gradient of its input at once, those of its parameters
// later. The first is what other ranks of a pipeline wait for; the second fills their idle time
// (the schedule zb_h1, see ddp_runtime/pipeline/schedule.h).
//
//   torch::nn::Sequential layers(ddp::SplitLinear(64, 64), torch::nn::ReLU());
//
// Note [Split backward]
// A layer called here has a graph of its own, from a copy of the input's handle to the output, and
// the graph outside has one node for it. When backward reaches that node, it runs the inner graph
// to the input only, and when the parameters' turn comes, to the parameters only. Autograd computes
// nothing that is not asked for, so each product is computed once, by the same kernels as without
// the split. The parameters are the leaves of the inner graph, so their gradients are added up as
// always: a parameter that several layers share gets one sum per micro-batch, and its hooks run
// once, when the gradient is complete. Between the two parts, a layer keeps what its parameters'
// gradients need: for a linear layer, its input and the gradient of its output.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/custom_class.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <vector>

namespace ddp {

// What one backward has put off.
class PostponedGradients final : public torch::CustomClassHolder {
 public:
  // The parameters' gradients follow from `gradient`, that of the output at `start` of a graph.
  void add(const torch::autograd::Edge& start, const torch::Tensor& gradient,
           const std::vector<torch::Tensor>& parameters);
  // Adds all gradients to those of the parameters, as backward would have done, and forgets what
  // they were computed from.
  void run();

 private:
  std::mutex mutex_;  // on a device, backward has a thread of its own
  std::vector<torch::autograd::Edge> starts_;
  std::vector<torch::Tensor> gradients_;
  std::vector<torch::Tensor> parameters_;
};

// While an instance exists, split_backward() on this thread puts gradients off.
class PostponeGradients {
 public:
  explicit PostponeGradients(c10::intrusive_ptr<PostponedGradients> gradients);
  PostponeGradients(const PostponeGradients&) = delete;
  PostponeGradients& operator=(const PostponeGradients&) = delete;
  ~PostponeGradients();

 private:
  c10::intrusive_ptr<PostponedGradients> before_;
};

// Returns layer(input). `parameters` must hold all parameters that it uses. If gradients are put
// off, backward computes only the gradient of `input`, and PostponedGradients::run() those of the
// parameters. Otherwise this is a plain call.
torch::Tensor split_backward(const std::function<torch::Tensor(const torch::Tensor&)>& layer,
                             const torch::Tensor& input,
                             const std::vector<torch::Tensor>& parameters);

// What layer(input) computes.
torch::Tensor split_linear(const torch::nn::LinearImpl& layer, const torch::Tensor& input);

// A torch::nn::Linear whose backward can be split.
class SplitLinearImpl final : public torch::nn::LinearImpl {
 public:
  using LinearImpl::LinearImpl;
  torch::Tensor forward(const torch::Tensor& input) { return split_linear(*this, input); }
};
TORCH_MODULE(SplitLinear);

}  // namespace ddp
