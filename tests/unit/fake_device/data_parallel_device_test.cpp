// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel where a device differs from CPUs. Most of its tests run on both.
#include <ATen/record_function.h>
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string_view>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/fusing_optimizers.h"

namespace ddp::fake_device {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 2;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::relu(norm(first(x)))); }

  torch::nn::Linear first{6, 9};
  SyncBatchNorm norm{torch::nn::BatchNormOptions(9)};
  torch::nn::Linear last{9, 3};
};
TORCH_MODULE(Net);

// With AdamW if the update is by bucket.
class Training {
 public:
  explicit Training(const comm::test::GpuRank& rank, bool by_bucket = false)
      : by_bucket_(by_bucket) {
    move_to(*net_, device(rank.rank));
    net_->norm->connect(rank.group);
    replica_.emplace(*net_, rank.group,
                     DataParallelOptions{.buckets = {.first_bytes = 100, .bytes = 100}});
    if (by_bucket) {
      optimizer_ = std::make_unique<Fusing<optim::AdamW>>(net_->parameters());
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(),
                                                       torch::optim::SGDOptions(0.1).momentum(0.9));
    }
    // Before the steps, because a copy from host memory that is not pinned is a wait.
    inputs_ = torch::sin(torch::arange(48, torch::kFloat32) + rank.rank)
                  .view({8, 6})
                  .to(device(rank.rank));
    targets_ = (torch::arange(8) + rank.rank).remainder(3).to(device(rank.rank));
  }

  void step() {
    auto step = replica_->begin_step();
    const auto loss = torch::nn::functional::cross_entropy(net_->forward(inputs_), targets_);
    if (by_bucket_) {
      step.backward_and_apply(loss, *optimizer_);
    } else {
      step.backward(loss);
      step.apply(*optimizer_);
    }
  }
  const DistributedDataParallel& replica() const { return *replica_; }

 private:
  bool by_bucket_;
  Net net_;
  std::optional<DistributedDataParallel> replica_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  torch::Tensor inputs_;
  torch::Tensor targets_;
};

class DataParallelOnTheDevice : public FakeDeviceTest {};

// The gradients of a step are reduced, and the parameters updated, without a wait.
TEST_F(DataParallelOnTheDevice, StepMakesNoHostWait) {
  for (const bool by_bucket : {false, true}) {
    comm::test::run_on_gpus(kRanks, [&](const comm::test::GpuRank& r) {
      Training training(r, by_bucket);
      training.step();  // learns the order of the gradients
      training.step();  // rebuilds the buckets
      r.group.barrier("all ranks are ready").wait();
      if (r.rank == 0) forget_host_waits();
      r.group.barrier("counting").wait();
      for (int i = 0; i < 3; ++i) training.step();
      r.group.barrier("counted").wait();
      if (r.rank == 0) {
        EXPECT_EQ(host_wait_names(), std::vector<std::string>());
      }
      r.group.barrier("compared").wait();
    });
  }
}

// How often this thread calls ATen's operator for AdamW.
class UpdateCount {
 public:
  UpdateCount()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(count).needsInputs(false))) {
    calls() = 0;
  }
  UpdateCount(const UpdateCount&) = delete;
  UpdateCount& operator=(const UpdateCount&) = delete;
  ~UpdateCount() { at::removeCallback(handle_); }
  static std::size_t& calls() {
    thread_local std::size_t number = 0;
    return number;
  }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    if (std::string_view(function.name()) == "aten::_fused_adamw_") ++calls();
    return nullptr;
  }

  at::CallbackHandle handle_;
};

TEST_F(DataParallelOnTheDevice, OneOperatorUpdatesABucket) {
  comm::test::run_on_gpus(kRanks, [](const comm::test::GpuRank& r) {
    Training training(r, true);
    for (int i = 0; i < 3; ++i) training.step();
    const UpdateCount updates;
    training.step();
    EXPECT_GT(training.replica().bucket_count(), 2U);
    EXPECT_EQ(UpdateCount::calls(), training.replica().bucket_count());
  });
}

TEST_F(DataParallelOnTheDevice, AnotherStreamIsAnError) {
  const auto errors = comm::test::run_gpu_ranks(kRanks, [](const comm::test::GpuRank& r) {
    Training training(r);
    training.step();
    const c10::impl::VirtualGuardImpl streams(kType);
    const c10::StreamGuard other(streams.getStreamFromGlobalPool(device(r.rank)));
    training.step();
  });
  EXPECT_THAT(errors, testing::Contains(HasSubstr("make the same stream current for both")));
  expected_problems();
}

TEST_F(DataParallelOnTheDevice, ParametersOnTwoDevicesAreAnError) {
  const auto errors = comm::test::run_gpu_ranks(1, [](const comm::test::GpuRank& r) {
    Net net;
    move_to(*net->first, device(0));
    DistributedDataParallel replica(*net, r.group);
  });
  EXPECT_THAT(errors, Each(HasSubstr("must be on one device in each process")));
}

// 24 MiB of gradients: the weights of the last layer are the first bucket, and on CPUs each of the
// others is one, too.
TEST_F(DataParallelOnTheDevice, BucketsAreLargerThanOnCpus) {
  const auto buckets_on = [](comm::Group& group, const torch::Device& where) {
    torch::nn::Sequential net;
    for (int i = 0; i < 6; ++i) {
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(1024, 1024).bias(false)));
    }
    if (!where.is_cpu()) move_to(*net, where);
    return DistributedDataParallel(*net, group).bucket_count();
  };
  comm::test::run_on_gpus(kRanks, [&](const comm::test::GpuRank& r) {
    EXPECT_EQ(buckets_on(r.host, torch::kCPU), 6U);
    EXPECT_EQ(buckets_on(r.group, device(r.rank)), 2U);
  });
}

}  // namespace
}  // namespace ddp::fake_device
