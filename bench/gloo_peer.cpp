// SPDX-License-Identifier: Apache-2.0
#include "bench/gloo_peer.h"

#ifdef SLURM_DDP_HAS_GLOO
#include "bench/c10d_gloo.h"
#endif

namespace ddp::bench {

#ifdef SLURM_DDP_HAS_GLOO

namespace {

class C10dGloo final : public GlooPeer {
 public:
  explicit C10dGloo(comm::Group& group) : group_(connect_gloo(group)) {}

  void all_reduce(std::vector<float>& data) override {
    std::vector<at::Tensor> tensors{
        torch::from_blob(data.data(), {static_cast<std::int64_t>(data.size())})};
    group_->allreduce(tensors)->wait();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

std::unique_ptr<GlooPeer> make_gloo_peer(comm::Group& group) {
  return std::make_unique<C10dGloo>(group);
}

#else

std::unique_ptr<GlooPeer> make_gloo_peer(comm::Group&) {
  return nullptr;
}

#endif

}  // namespace ddp::bench
