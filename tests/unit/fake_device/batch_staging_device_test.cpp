// SPDX-License-Identifier: Apache-2.0
// Batches that are copied to a device while it computes; see Note [Staged batches]. The fixture
// fails if two streams access memory in no order.
#include "ddp_runtime/train/step/batch_staging.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "ddp_runtime/data/batch_transfer.h"
#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::train {
namespace {

using fake_device::device;
using testing::HasSubstr;

constexpr int kTensors = 3;  // of a batch

data::Batch numbered(int number) {
  return data::pin_for(device(), {torch::full({4, 8}, number, torch::kFloat32),
                                  torch::full({4}, number, torch::kInt64),
                                  {torch::full({4, 2}, number, torch::kUInt8)}});
}

data::Batch place_for_batches() {
  return data::for_each_tensor(
      numbered(0), [](const torch::Tensor& t) { return torch::zeros_like(t.to(device())); });
}

// The sum of a step's inputs, which the host reads.
struct Sum {
  explicit Sum(const data::Batch& batch)
      : on_device(batch.inputs.sum() + batch.targets.sum() + batch.more.at(0).sum()) {}
  double value() const { return on_device.cpu().item<double>(); }

  torch::Tensor on_device;
};

double sum_of(int number) {
  return number * (32.0 + 4.0 + 8.0);
}

// The steps have a stream of their own, as in a run with a graph.
class BatchStagingOnDevice : public fake_device::FakeDeviceTest {
 protected:
  BatchStagingOnDevice() {
    fake_device::reset();
    steps_ = std::make_unique<c10::StreamGuard>(fake_device::stream_of_pool(0, /*high=*/false));
  }

  // From now on, what is put on the stream of the steps waits until resume(), as for a long step.
  static void pause() {
    constexpr int kOther = 1;
    const auto other = fake_device::current_stream(kOther);
    fake::hold(kOther);
    fake_device::launch(other, "a long step", {}, {});
    c10::Event done(fake_device::kType);
    done.record(other);
    done.block(fake_device::current_stream());
  }
  static void resume() { fake::release(1); }

  // Puts the copies of a batch on the streams from another thread, because an operator of the fake
  // device returns when its stream has come to it.
  std::thread copy_in_thread(BatchStaging& staging, int number, data::Batch& to) const {
    return std::thread([&staging, number, &to, stream = fake_device::current_stream()] {
      const auto batch = numbered(number);
      const c10::StreamGuard guard(stream);
      staging.copy(batch, to);
    });
  }
  // Waits for this number of launches, or for the time in which they would come.
  static int launches_soon(int wanted) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (fake_device::launches() < wanted && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return fake_device::launches();
  }

 private:
  std::unique_ptr<c10::StreamGuard> steps_;
};

TEST_F(BatchStagingOnDevice, BringsEachBatchBeforeItsStep) {
  auto place = place_for_batches();
  BatchStaging staging(device());
  std::vector<Sum> sums;
  for (const int number : {1, 2, 3, 4}) {
    staging.copy(numbered(number), place);
    sums.emplace_back(place);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)].value(), sum_of(i + 1));
}

TEST_F(BatchStagingOnDevice, CopiesTheNextBatchWhileAStepRuns) {
  auto place = place_for_batches();
  BatchStaging staging(device());
  staging.copy(numbered(1), place);
  pause();
  const int before = fake_device::launches();
  auto thread = copy_in_thread(staging, 2, place);
  EXPECT_EQ(launches_soon(before + kTensors), before + kTensors);
  resume();
  thread.join();
  EXPECT_EQ(fake_device::launches(), before + 2 * kTensors);
  EXPECT_EQ(Sum(place).value(), sum_of(2));
}

// The allocator may have given it the memory of a tensor that the running step still uses.
TEST_F(BatchStagingOnDevice, FirstCopyWaitsForTheStepBefore) {
  auto place = place_for_batches();
  BatchStaging staging(device());
  pause();
  const int before = fake_device::launches();
  auto thread = copy_in_thread(staging, 1, place);
  EXPECT_EQ(launches_soon(before + 1), before);
  resume();
  thread.join();
  EXPECT_EQ(Sum(place).value(), sum_of(1));
}

TEST_F(BatchStagingOnDevice, HostDoesNotWait) {
  auto place = place_for_batches();
  BatchStaging staging(device());
  fake_device::forget_host_waits();
  for (const int number : {1, 2, 3}) staging.copy(numbered(number), place);
  EXPECT_EQ(fake_device::host_waits(), 0);
}

// Its memory may go to the next tensor of the steps' stream, for which nothing has waited.
TEST_F(BatchStagingOnDevice, MayEndAfterAnErrorBetweenTheCopies) {
  auto place = place_for_batches();
  auto batch = numbered(1);
  batch.more = {torch::zeros({5, 2}, torch::kUInt8)};
  auto staging = std::make_unique<BatchStaging>(device());
  EXPECT_THAT(error_of([&] { staging->copy(batch, place); }), HasSubstr("size of tensor"));
  staging.reset();
}

}  // namespace
}  // namespace ddp::train
