#include "ddp_runtime/train/evaluation.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ddp_runtime/data/sampler.h"

namespace ddp::train {

Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t batch, amp::Precision precision) {
  const torch::NoGradGuard no_grad;
  module.eval();
  std::vector<double> sums(3);  // loss, correct, targets
  const auto share = data::evaluation_share(data.size(), group.rank(), group.size());
  for (std::int64_t first = share.first; first < share.last; first += batch) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(batch, share.last - first)));
    std::iota(indices.begin(), indices.end(), first);
    const auto [inputs, targets] = data.get(indices);
    const amp::AutocastGuard autocast(torch::kCPU, precision);
    const auto scores = forward(inputs).to(torch::kFloat32);
    sums[0] += torch::nn::functional::cross_entropy(
                   scores, targets,
                   torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum))
                   .item<double>();
    sums[1] += scores.argmax(1).eq(targets).sum().item<double>();
    sums[2] += static_cast<double>(targets.numel());
  }
  module.train();
  group.all_reduce(comm::buffer_of(std::span(sums)), comm::ReduceOp::sum, "evaluation").wait();
  return {sums[0] / sums[2], sums[1] / sums[2], static_cast<std::int64_t>(sums[2])};
}

}  // namespace ddp::train
