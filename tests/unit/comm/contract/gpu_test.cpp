// SPDX-License-Identifier: Apache-2.0
// What waits for what when a group communicates the memory of GPUs.
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/contract/group_contract.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using namespace std::chrono_literals;

class GpuGroup : public GroupContract {};

INSTANTIATE_TEST_SUITE_P(Of, GpuGroup, testing::ValuesIn(kGpuKinds), name_of_kind);

// These two prove that the fake would notice if the group did not order the streams.
TEST_P(GpuGroup, MissingWaitIsDetected) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 4);
    data.fill(1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    // It has ended long ago, but nothing says so to the stream.
    while (work.times().finished == Clock::time_point()) std::this_thread::sleep_for(1ms);
    data.get();
  });
  EXPECT_THAT(expected_problems(),
              Contains(HasSubstr("a kernel that reads reads memory without waiting for " +
                                 std::string(kind.way == Way::nccl ? "ncclAllReduce" : "a copy"))));
}

TEST_P(GpuGroup, WrongStreamIsDetected) {
  run(2, [](GpuRank r) {
    const TestStream other;
    const Numbers data(r, 4);
    write(data.buffer, std::vector<float>(4, 1), other.get());
    r.group.all_reduce(data.buffer, ReduceOp::sum).wait();
    other.finish();
    r.stream.finish();
  });
  EXPECT_THAT(expected_problems(),
              Contains(AllOf(HasSubstr(kind.way == Way::nccl ? "ncclAllReduce" : "a copy"),
                             HasSubstr("without waiting for a kernel that writes"))));
}

TEST_P(GpuGroup, BuffersOnTwoStreamsAreRefused) {
  run(2, [](GpuRank r) {
    const TestStream other;
    const Numbers data(r, 8);
    Buffer part = data.buffer.slice(0, 4);
    part.stream = other.get();
    EXPECT_THROW(r.group.all_gather(part, data.buffer), std::invalid_argument);
    EXPECT_THROW(r.group.all_to_all(data.buffer.slice(0, 4), part), std::invalid_argument);
  });
}

// Ranks that cut in different ways can be told apart then.
TEST_P(GpuGroup, HowABufferIsCutIsRecorded) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 8);
    data.fill(1);
    r.group.all_gather(data.buffer, Cut{{2, 6}}).wait();
    r.group.reduce_scatter(data.buffer, Cut{{3, 5}}, ReduceOp::sum).wait();
    r.stream.finish();
    std::vector<std::string> signatures;
    for (const auto& call : r.group.flight_recorder().snapshot().recent) {
      signatures.push_back(call.signature);
    }
    EXPECT_THAT(signatures, Contains(HasSubstr("in parts of 2, 6")));
    EXPECT_THAT(signatures, Contains(HasSubstr("in parts of 3, 5")));
  });
}

// Also if there is nothing to send, because there is no other rank.
TEST_P(GpuGroup, AnotherStreamMayWait) {
  for (const int ranks : {1, 2}) {
    run(ranks, [=](GpuRank r) {
      const TestStream other;
      const Numbers data(r, 4);
      data.fill(1);
      r.group.all_reduce(data.buffer, ReduceOp::sum).wait_on(other.get());
      EXPECT_THAT(read<float>(data.buffer, other), Each(ranks));
      r.group.broadcast(data.buffer, 0).wait_on(other.get());
      EXPECT_THAT(read<float>(data.buffer, other), Each(ranks));
    });
  }
}

TEST_P(GpuGroup, HostMayWait) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 4);
    data.fill(1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum);
    work.wait_host();
    EXPECT_TRUE(work.done());
    fake::touch("the host", range_of(data.buffer), false);
    EXPECT_EQ(*reinterpret_cast<const float*>(data.buffer.data), 2);
    // Polling leaves no error behind that the program would take for its own.
    EXPECT_EQ(device_calls().take_last_error(), cuda::kSuccess);
  });
}

TEST_P(GpuGroup, BarrierMakesTheHostWaitForEarlierCollectives) {
  run(3, [](GpuRank r) {
    const Numbers data(r, 1000);
    data.fill(1);
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) works.push_back(r.group.all_reduce(data.buffer, ReduceOp::max));
    r.group.barrier("end of the epoch").wait();
    for (const auto& work : works) EXPECT_TRUE(work.done());
    fake::touch("the host", range_of(data.buffer), false);
  });
}

// Neither the call nor done() waits for the GPU. The data is taken when its kernel has run, and
// held until then.
TEST_P(GpuGroup, CallDoesNotWaitForTheGpu) {
  run(2, [](GpuRank r) {
    auto held = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = held;
    const Numbers data(r, 4);
    data.fill(0);
    r.stream.finish();
    r.group.barrier().wait();
    r.host.barrier().wait();  // ranks may share a GPU, which the barrier needed
    fake::hold(r.rank);
    data.fill(static_cast<float>(1 + r.rank));
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, {}, std::move(held));
    std::this_thread::sleep_for(20ms);
    EXPECT_FALSE(work.done());
    EXPECT_FALSE(watched.expired());
    r.host.barrier().wait();
    fake::release(r.rank);
    work.wait();
    EXPECT_THAT(data.get(), Each(3));
    while (!watched.expired()) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(work.done());
  });
}

TEST_P(GpuGroup, ReceivedDataWaitsForEarlierReaders) {
  run(2, [](GpuRank r) {
    const Numbers data(r, 4);
    data.fill(static_cast<float>(r.rank));
    std::vector<float> before(4);
    // On a held device, this kernel is still to run when the message has long arrived.
    if (r.rank == 1) fake::hold(1);
    fake::launch(
        r.stream.get(), "a kernel that reads", {range_of(data.buffer)}, {},
        [&, from = data.buffer.data] { std::memcpy(before.data(), from, 4 * sizeof(float)); });
    const Work work = r.rank == 0 ? r.group.send(data.buffer, 1) : r.group.receive(data.buffer, 0);
    work.wait();
    if (r.rank == 1) fake::release(1);
    EXPECT_THAT(data.get(), Each(0));
    EXPECT_THAT(before, Each(static_cast<float>(r.rank)));
  });
}

TEST_P(GpuGroup, LostGpuEndsAllRanks) {
  const auto errors = errors_of(4, [this](GpuRank r) {
    const Numbers data(r, 4);
    r.group.barrier().wait();
    const bool loses = r.rank / kind.ranks_per_gpu == 1;
    if (loses) fake::hold(1);
    const Work work = r.group.all_reduce(data.buffer, ReduceOp::sum, "bucket 2", data.memory);
    if (loses) fake::break_device(1, 700);
    const std::string error = error_of([&] { work.wait_host(); });
    fake::release(1);
    throw RuntimeError(error);
  });
  EXPECT_THAT(errors, Each(HasSubstr("an illegal memory access was encountered (700)")));
}

}  // namespace
}  // namespace ddp::comm::test
