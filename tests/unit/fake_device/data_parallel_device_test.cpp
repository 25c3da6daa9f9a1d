// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel on the fake device: the same bits as on CPUs, and no wait of the host.
#include <ATen/record_function.h>
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/errors.h"
#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "ddp_runtime/parallel/sync_batch_norm.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int kSteps = 5;
constexpr std::int64_t kSamples = 8;  // of one micro-batch on one rank

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("spare", spare);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x, bool uses_spare) {
    auto y = torch::relu(norm(first(x)));
    if (uses_spare) y = spare(y);
    return last(y);
  }

  torch::nn::Linear first{6, 9};
  SyncBatchNorm norm{torch::nn::BatchNormOptions(9)};
  torch::nn::Linear spare{9, 9};
  torch::nn::Linear last{9, 3};
};
TORCH_MODULE(Net);

struct Case {
  DataParallelOptions options = {};
  int micro_batches = 1;
  int spare_every = 1;  // the layer "spare" is used in every n-th step
  bool by_bucket = false;
};

// Our optimizers fuse on CUDA only.
class FusedAdamW : public optim::AdamW {
 public:
  using optim::AdamW::AdamW;

 protected:
  bool fuses(torch::DeviceType type) const override { return type == kType; }
};

DataParallelOptions small_buckets() {
  return {.buckets = {.first_bytes = 100, .bytes = 300}};
}

// Models are built on the CPU, one after another, because all threads share one generator.
Net make_net(const torch::Device& device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  Net net;
  if (!device.is_cpu()) move_to(*net, device);
  return net;
}

torch::Tensor inputs_of(int batch, const torch::Device& device) {
  const auto values = torch::arange(kSamples * 6, torch::kFloat32) + 7 * batch;
  return torch::sin(values).view({kSamples, 6}).to(device);
}

torch::Tensor targets_of(int batch, const torch::Device& device) {
  return (torch::arange(kSamples) + batch).remainder(3).to(device);
}

class Training {
 public:
  Training(comm::Group& group, const torch::Device& device, const Case& what)
      : case_(what), net_(make_net(device)) {
    net_->norm->connect(group);
    replica_.emplace(*net_, group, what.options);
    if (what.by_bucket) {
      optimizer_ = std::make_unique<FusedAdamW>(net_->parameters());
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(),
                                                       torch::optim::SGDOptions(0.1).momentum(0.9));
    }
    // Before the steps, because a copy from host memory that is not pinned is a wait.
    for (int i = 0; i < kSteps * what.micro_batches; ++i) {
      const int batch = i * kRanks + group.rank();
      inputs_.push_back(inputs_of(batch, device));
      targets_.push_back(targets_of(batch, device));
    }
  }

  // The loss is multiplied by `factor`.
  void step(double factor = 1) {
    const bool uses_spare = steps_ % case_.spare_every == 0;
    auto step = replica_->begin_step(case_.micro_batches);
    for (int m = 0; m < case_.micro_batches; ++m) {
      const auto batch = static_cast<std::size_t>(steps_ * case_.micro_batches + m);
      const auto scores = net_->forward(inputs_.at(batch), uses_spare);
      const auto loss = torch::nn::functional::cross_entropy(scores, targets_.at(batch)) * factor;
      if (case_.by_bucket && m + 1 == case_.micro_batches) {
        step.backward_and_apply(loss, *optimizer_);
      } else {
        step.backward(loss);
      }
    }
    ++steps_;
    if (!case_.by_bucket) step.apply(*optimizer_);
  }
  DistributedDataParallel& replica() { return *replica_; }
  std::vector<torch::Tensor> state() const {
    std::vector<torch::Tensor> tensors;
    for (const auto& p : net_->parameters()) tensors.push_back(p.detach().to(torch::kCPU).clone());
    for (const auto& b : net_->buffers()) tensors.push_back(b.to(torch::kCPU).clone());
    return tensors;
  }

 private:
  Case case_;
  Net net_;
  std::optional<DistributedDataParallel> replica_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<torch::Tensor> inputs_;
  std::vector<torch::Tensor> targets_;
  int steps_ = 0;
};

std::vector<torch::Tensor> trained_on_cpus(const Case& what) {
  std::vector<torch::Tensor> state;
  comm::run_ranks(kRanks, [&](comm::Group& group) {
    Training training(group, torch::kCPU, what);
    for (int i = 0; i < kSteps; ++i) training.step();
    if (group.rank() == 0) state = training.state();
  });
  return state;
}

class DataParallelOnTheDevice : public FakeDeviceTest {
 protected:
  static void expect_the_bits_of_cpus(const Case& what) {
    const auto expected = trained_on_cpus(what);
    const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
      Training training(r.group, device(r.rank), what);
      for (int i = 0; i < kSteps; ++i) training.step();
      const auto state = training.state();
      ASSERT_EQ(state.size(), expected.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        EXPECT_TRUE(same_bits(state[i], expected[i])) << "tensor " << i << " of rank " << r.rank;
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
};

TEST_F(DataParallelOnTheDevice, SeveralBuckets) {
  expect_the_bits_of_cpus({.options = small_buckets()});
}

TEST_F(DataParallelOnTheDevice, OneBucket) {
  expect_the_bits_of_cpus({.options = {}});
}

TEST_F(DataParallelOnTheDevice, AccumulatedMicroBatches) {
  expect_the_bits_of_cpus({.options = small_buckets(), .micro_batches = 3});
}

TEST_F(DataParallelOnTheDevice, UnusedParameters) {
  auto options = small_buckets();
  options.allow_unused = true;
  expect_the_bits_of_cpus({.options = options, .micro_batches = 2, .spare_every = 2});
}

TEST_F(DataParallelOnTheDevice, StaticGraph) {
  auto options = small_buckets();
  options.static_graph = true;
  expect_the_bits_of_cpus({.options = options});
}

TEST_F(DataParallelOnTheDevice, CompressedGradients) {
  auto options = small_buckets();
  options.hook = hooks::by_name("bf16");
  expect_the_bits_of_cpus({.options = options});
}

// The gradients of a step are reduced, and the parameters updated, without a wait.
TEST_F(DataParallelOnTheDevice, StepMakesNoHostWait) {
  for (const bool by_bucket : {false, true}) {
    const Case what{.options = small_buckets(), .by_bucket = by_bucket};
    const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
      Training training(r.group, device(r.rank), what);
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
    EXPECT_THAT(errors, Each(""));
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
  const Case what{.options = small_buckets(), .by_bucket = true};
  const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
    Training training(r.group, device(r.rank), what);
    for (int i = 0; i < 3; ++i) training.step();
    const UpdateCount updates;
    training.step();
    EXPECT_GT(training.replica().bucket_count(), 2U);
    EXPECT_EQ(UpdateCount::calls(), training.replica().bucket_count());
  });
  EXPECT_THAT(errors, Each(""));
}

// Reading the loss in its own step would wait for the device.
TEST_F(DataParallelOnTheDevice, LossThatIsNotFiniteIsReportedInTheNextStep) {
  int steps_done = 0;
  const auto errors = comm::test::run_gpu_ranks(kRanks, [&](const comm::test::GpuRank& r) {
    Training training(r.group, device(r.rank), {.options = small_buckets(), .micro_batches = 2});
    for (int i = 1; i <= 4; ++i) {
      training.step(i == 2 && r.rank == 1 ? std::nan("") : 1);
      if (r.rank == 0) steps_done = i;
    }
  });
  EXPECT_THAT(errors, Each(HasSubstr("the loss is not finite on rank 1 in step 2")));
  EXPECT_EQ(steps_done, 2);
}

TEST_F(DataParallelOnTheDevice, LossOfTheLastStepCanBeAskedFor) {
  const auto errors = comm::test::run_gpu_ranks(kRanks, [](const comm::test::GpuRank& r) {
    Training training(r.group, device(r.rank), {.options = small_buckets()});
    training.replica().require_finite_loss();  // before the first step
    training.step();
    training.replica().require_finite_loss();
    training.step(r.rank == 0 ? std::nan("") : 1);
    training.replica().require_finite_loss();
  });
  EXPECT_THAT(errors, Each(HasSubstr("the loss is not finite on rank 0 in step 2")));
}

TEST_F(DataParallelOnTheDevice, AnotherStreamIsAnError) {
  const auto errors = comm::test::run_gpu_ranks(kRanks, [](const comm::test::GpuRank& r) {
    Training training(r.group, device(r.rank), {.options = small_buckets()});
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
    auto net = make_net(torch::kCPU);
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
  const auto errors = comm::test::run_gpu_ranks(2, [&](const comm::test::GpuRank& r) {
    EXPECT_EQ(buckets_on(r.host, torch::kCPU), 6U);
    EXPECT_EQ(buckets_on(r.group, device(r.rank)), 2U);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

}  // namespace
}  // namespace ddp::fake_device
