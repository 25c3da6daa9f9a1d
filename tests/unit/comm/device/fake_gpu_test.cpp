// SPDX-License-Identifier: Apache-2.0
// The fake itself: it must notice what real GPUs punish. GpuGroup.MissingWaitIsDetected and
// GpuGroup.WrongStreamIsDetected prove the same of missing waits.
#include "tests/unit/comm/fake_gpu/fake_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "base/errors.h"
#include "ddp_runtime/comm/device/communicator.h"
#include "ddp_runtime/comm/device/event_pool.h"
#include "tests/unit/comm/device/gpu_kernels.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Both ranks are in this thread.
class FakeGpuTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    libraries_ = {device_calls(), nccl::load(SLURM_DDP_FAKE_GPU)};
  }

  const nccl::Functions& nccl() const { return libraries_.nccl; }
  nccl::UniqueId id() const {
    nccl::UniqueId id{};
    nccl().get_unique_id(&id);
    return id;
  }
  // Rank `rank` of two on device `rank`.
  std::unique_ptr<Communicator> connect(const nccl::UniqueId& id, int rank) const {
    device_calls().set_device(rank);
    return std::make_unique<Communicator>(libraries_, id, Communicator::Rank{rank, 2, 0});
  }
  static void settle_both(Communicator& a, Communicator& b) {
    while (!a.settled() || !b.settled()) {
    }
  }

  DeviceLibraries libraries_;
};

struct OnDevice {
  explicit OnDevice(int device) { device_calls().set_device(device); }
};

// A rank with its memory and its stream on its device.
struct Place : OnDevice {
  explicit Place(int device) : OnDevice(device) {}
  std::shared_ptr<std::byte> memory = device_memory(4096);
  TestStream stream;
  TestStream other;
  Buffer data = on_stream(memory.get(), 4, ElementType::f32, stream);
};

TEST_F(FakeGpuTest, EventBeforeTheLaunchMissesTheCollective) {
  const nccl::UniqueId one = id();
  const auto a = connect(one, 0);
  const auto b = connect(one, 1);
  settle_both(*a, *b);
  {
    Place p0(0);
    Place p1(1);
    const auto events = std::make_shared<EventPool>(device_calls(), 0);
    a->all_reduce(p0.data, ReduceOp::sum, p0.stream.get());
    const auto too_early = events->record(p0.stream.get());
    b->all_reduce(p1.data, ReduceOp::sum, p1.stream.get());
    settle_both(*a, *b);
    events->make_wait(p0.other.get(), too_early);
    device_calls().set_device(0);
    read<float>(p0.data, p0.other);
    p0.stream.finish();
    p1.stream.finish();
  }
  EXPECT_THAT(expected_problems(),
              ElementsAre(AllOf(HasSubstr("without waiting for"), HasSubstr("ncclAllReduce"))));
}

TEST_F(FakeGpuTest, RefusesACallWhileTheLastIsInProgress) {
  const nccl::UniqueId one = id();
  const auto a = connect(one, 0);
  const auto b = connect(one, 1);
  settle_both(*a, *b);
  {
    Place p0(0);
    a->all_reduce(p0.data, ReduceOp::sum, p0.stream.get());
    EXPECT_THROW(a->all_reduce(p0.data, ReduceOp::sum, p0.stream.get()), RuntimeError);
    while (!a->settled()) {
    }
    a->abort();
    EXPECT_THROW(a->settled(), RuntimeError);
    p0.stream.finish();
  }
  EXPECT_THAT(expected_problems(),
              ElementsAre("ncclAllReduce while the previous call is in progress"));
}

// Two communicators on the same two GPUs, each with its own stream.
TEST_F(FakeGpuTest, ReportsADeadlockWithBothOrders) {
  const nccl::UniqueId one = id();
  const nccl::UniqueId two = id();
  const auto a0 = connect(one, 0);
  const auto b0 = connect(two, 0);
  const auto a1 = connect(one, 1);
  const auto b1 = connect(two, 1);
  settle_both(*a0, *a1);
  settle_both(*b0, *b1);
  {
    Place p0(0);
    Place p1(1);
    const auto launch = [](Communicator& c, const Place& p, const TestStream& stream,
                           std::size_t at) {
      Buffer data = p.data;
      data.data += at;
      c.all_reduce(data, ReduceOp::sum, stream.get());
      while (!c.settled()) {
      }
    };
    launch(*a0, p0, p0.stream, 0);
    launch(*b1, p1, p1.other, 64);
    EXPECT_TRUE(fake::problems().empty());
    launch(*b0, p0, p0.other, 64);
    launch(*a1, p1, p1.stream, 0);
    EXPECT_THAT(expected_problems(),
                ElementsAre(AllOf(HasSubstr("deadlock: device "),
                                  HasSubstr("collective 0 of communicator 1) before"),
                                  HasSubstr("collective 0 of communicator 0) before"))));
    for (auto* c : {a0.get(), b0.get(), a1.get(), b1.get()}) c->abort();
    for (const auto* p : {&p0, &p1}) {
      p->stream.finish();
      p->other.finish();
    }
  }
}

TEST_F(FakeGpuTest, RefusesMemoryThatIsFreedTooEarly) {
  device_calls().set_device(0);
  const TestStream stream;
  fake::hold(0);
  {
    const auto memory = device_memory(16);
    write(on_stream(memory.get(), 4, ElementType::f32, stream), std::vector<float>(4));
  }
  EXPECT_THAT(expected_problems(),
              ElementsAre("memory is freed before a kernel that writes has run"));
  fake::reset();  // the kernel would write to freed memory
}

TEST_F(FakeGpuTest, RefusesToMixWindowsAndOtherMemory) {
  const nccl::UniqueId one = id();
  const auto a = connect(one, 0);
  const auto b = connect(one, 1);
  settle_both(*a, *b);
  {
    Place p0(0);
    Place p1(1);
    nccl::Window window = nullptr;
    a->register_window(p0.memory.get(), 4096, &window);
    settle_both(*a, *b);
    a->all_reduce(p0.data, ReduceOp::sum, p0.stream.get());
    b->all_reduce(p1.data, ReduceOp::sum, p1.stream.get());
    settle_both(*a, *b);
    p0.stream.finish();
    p1.stream.finish();
    EXPECT_THAT(expected_problems(),
                ElementsAre(HasSubstr("mixes memory in a window with other memory")));
    a->deregister_window(window);
    settle_both(*a, *b);
  }
}

TEST_F(FakeGpuTest, NoticesAnAbortDuringACall) {
  fake::reset({.call_milliseconds = 100});
  nccl::Comm comm = nullptr;
  nccl::Config config;
  config.blocking = 0;
  device_calls().set_device(0);
  nccl().init_rank_config(&comm, 1, id(), 0, &config);
  std::thread caller([&] {
    int state = 0;
    nccl().get_async_error(comm, &state);
  });
  while (fake::threads_in_calls() == 0) std::this_thread::yield();
  nccl().abort(comm);
  caller.join();
  EXPECT_THAT(expected_problems(), Contains("ncclCommAbort while another thread is in a call"));
}

TEST_F(FakeGpuTest, HostMustWaitToo) {
  device_calls().set_device(0);
  const TestStream stream;
  const auto memory = device_memory(16);
  const Buffer data = on_stream(memory.get(), 4, ElementType::f32, stream);
  write(data, std::vector<float>(4));
  fake::touch("the host", range_of(data), false);
  EXPECT_THAT(expected_problems(), ElementsAre("the host reads memory without waiting for a kernel "
                                               "that writes, which writes it"));
  stream.finish();
}

// ---- copies between the host and a device

struct HostMemory {
  explicit HostMemory(std::size_t bytes) {
    void* pages = nullptr;
    EXPECT_EQ(device_calls().allocate_host(&pages, bytes), cuda::kSuccess);
    memory = {static_cast<std::byte*>(pages), [](std::byte* p) { device_calls().free_host(p); }};
  }
  std::shared_ptr<std::byte> memory;
};

int copy_on(const TestStream& stream, void* to, const void* from) {
  return device_calls().copy(to, from, 16, cuda::kCopyDefault, stream.get());
}

TEST_F(FakeGpuTest, RefusesCopiesOfPageableAndOfFreedMemory) {
  fake::reset({.pageable_copies = false});
  const Place p(0);
  std::array<float, 4> pageable{};
  EXPECT_NE(copy_on(p.stream, pageable.data(), p.memory.get()), cuda::kSuccess);
  std::byte* freed = nullptr;
  {
    const HostMemory host(16);
    freed = host.memory.get();
    EXPECT_EQ(copy_on(p.stream, freed, p.memory.get()), cuda::kSuccess);
    p.stream.finish();
    EXPECT_EQ(fake::page_locked_bytes(), 16U);
  }
  EXPECT_EQ(fake::page_locked_bytes(), 0U);
  EXPECT_NE(copy_on(p.stream, freed, p.memory.get()), cuda::kSuccess);
  const std::string problem = "a copy uses memory that is neither of a device nor page-locked";
  EXPECT_THAT(expected_problems(), ElementsAre(problem, problem));
  device_calls().take_last_error();
}

TEST_F(FakeGpuTest, RefusesHostMemoryThatIsFreedTooEarly) {
  const Place p(0);
  fake::hold(0);
  void* pages = nullptr;
  ASSERT_EQ(device_calls().allocate_host(&pages, 16), cuda::kSuccess);
  copy_on(p.stream, pages, p.memory.get());
  device_calls().free_host(pages);
  EXPECT_THAT(expected_problems(), ElementsAre("memory is freed before a copy has run"));
  fake::break_device(0, 700);  // the copy never runs
}

TEST_F(FakeGpuTest, KnowsWhoAllocatedMemory) {
  const Place p(0);
  void* pages = nullptr;
  ASSERT_EQ(device_calls().allocate_host(&pages, 16), cuda::kSuccess);
  device_calls().free(pages);
  EXPECT_THAT(expected_problems(), ElementsAre("memory is freed by the wrong function"));
}

}  // namespace
}  // namespace ddp::comm::test
