#include "ddp_runtime/tools/bench/gloo_peer.h"

#ifdef SLURM_DDP_HAS_GLOO
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#endif

namespace ddp::bench {

#ifdef SLURM_DDP_HAS_GLOO

namespace {

class C10dGloo final : public GlooPeer {
 public:
  C10dGloo(comm::Group& group, const std::string& leader, std::uint16_t port) {
    c10d::TCPStoreOptions store;
    store.port = port;
    store.isServer = group.rank() == 0;
    store.numWorkers = static_cast<std::size_t>(group.size());
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::TCPStore>(leader, store), group.rank(), group.size(), options);
  }

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
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto leader = group.broadcast_text(host.data(), 0);
  return std::make_unique<C10dGloo>(group, leader, 29777);
}

#else

std::unique_ptr<GlooPeer> make_gloo_peer(comm::Group&) {
  return nullptr;
}

#endif

}  // namespace ddp::bench
