// SPDX-License-Identifier: Apache-2.0
#include "bench/reducer_peer.h"

#ifdef SLURM_DDP_HAS_C10D_REDUCER
#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "bench/c10d_gloo.h"
#endif

namespace ddp::bench {

#ifdef SLURM_DDP_HAS_C10D_REDUCER

namespace {

class C10dReducer final : public ReducerPeer {
 public:
  C10dReducer(comm::Group& group, const std::vector<torch::Tensor>& parameters) {
    std::unordered_map<std::size_t, std::string> names;
    for (std::size_t i = 0; i < parameters.size(); ++i) names[i] = std::to_string(i);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        parameters, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap});
    // Backward starts with the last parameters; Python reverses the lists in the same way.
    std::reverse(buckets.begin(), buckets.end());
    std::reverse(limits.begin(), limits.end());
    const std::vector<bool> sparse(parameters.size(), false);
    constexpr bool kFindUnused = false;
    constexpr bool kGradientIsView = false;
    reducer_ = std::make_unique<c10d::Reducer>(
        parameters, std::move(buckets), std::move(limits), connect_gloo(group), sparse,
        c10d::kDefaultBucketBytesCap, kFindUnused, kGradientIsView, std::move(names),
        c10d::kDefaultFirstBucketBytes);
  }

  void before_forward() override {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();  // once, after the first step has shown the order of gradients
  }
  void before_backward() override { reducer_->prepare_for_backward({}); }

 private:
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<ReducerPeer> make_reducer_peer(comm::Group& group,
                                               const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<C10dReducer>(group, parameters);
}

#else

std::unique_ptr<ReducerPeer> make_reducer_peer(comm::Group&, const std::vector<torch::Tensor>&) {
  return nullptr;
}

#endif

}  // namespace ddp::bench
