// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/test_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::test {
namespace {

static_assert(kMaxRanks == fake_device::kDevices);

// How the problems of fake::reuse() begin.
constexpr const char* kEarlyFree = "the next owner of freed memory ";

// What the current test may do to its devices.
struct Allowed {
  std::atomic<bool> all{false};
  std::atomic<bool> early_frees{false};
};

Allowed& allowed() {
  static Allowed of_test;
  return of_test;
}

std::vector<std::string> unexpected_problems() {
  if (allowed().all) return {};
  auto problems = fake::problems();
  if (allowed().early_frees) {
    std::erase_if(problems,
                  [](const std::string& problem) { return problem.starts_with(kEarlyFree); });
  }
  return problems;
}

// Does what FakeDeviceTest does, for tests that do not know on which device they run.
class FreshDevices final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    allowed().all = false;
    allowed().early_frees = false;
    fake_device::reset();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    EXPECT_EQ(unexpected_problems(), std::vector<std::string>()) << test.name();
    fake_device::release();
    EXPECT_EQ(fake::leaks(), "") << test.name();
  }
};

[[maybe_unused]] const bool listening = [] {
  // GoogleTest owns its listeners.
  if (on_device()) {
    testing::UnitTest::GetInstance()->listeners().Append(
        std::make_unique<FreshDevices>().release());
  }
  return true;
}();

}  // namespace

bool on_device() {
  static const bool is_fake = [] {
    const char* device = std::getenv("SLURM_DDP_TEST_DEVICE");
    return device != nullptr && std::string_view(device) == "fake";
  }();
  return is_fake;
}

torch::Device test_device() {
  if (!on_device()) return torch::kCPU;
  return c10::impl::VirtualGuardImpl(fake_device::kType).getDevice();
}

void move_to_test_device(torch::nn::Module& module) {
  if (on_device()) fake_device::move_to(module, test_device());
}

void allow_device_problems() {
  allowed().all = true;
}

void allow_collectives_at_once(int count) {
  if (on_device()) fake_device::reset({.collectives_at_once = count});
}

void run_ranks(int ranks, const std::function<void(comm::Group&)>& body, comm::GroupOptions options,
               const std::function<int(int rank)>& node_of) {
  if (!on_device()) return comm::run_ranks(ranks, body, std::move(options), node_of);
  if (ranks > kMaxRanks) throw UsageError("the fake device has too few devices for these ranks");
  std::mutex mutex;
  std::exception_ptr first;
  const auto errors = comm::test::run_gpu_ranks(
      ranks,
      [&](const comm::test::GpuRank& rank) {
        try {
          body(rank.group);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
          throw;
        }
      },
      {}, options, node_of);
  // A rank that fails drops the tensors of collectives that have not ended.
  if (first) {
    allowed().early_frees = true;
    std::rethrow_exception(first);
  }
  for (const auto& error : errors) {
    if (!error.empty()) throw RuntimeError(error);
  }
}

}  // namespace ddp::test
