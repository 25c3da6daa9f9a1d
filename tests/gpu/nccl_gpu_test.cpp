// SPDX-License-Identifier: Apache-2.0
// The group of GPUs with the real CUDA and NCCL. The unit tests run the same code on a fake, which
// finds more mistakes than a GPU does; these tests show that the real libraries behave like it.
// Without a GPU each case is skipped, with the reason.
#include "ddp_runtime/comm/device/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/gpu/elements.h"
#include "tests/gpu/gpu_ranks.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::gpu {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using namespace std::chrono_literals;

// A failure must end all ranks within this time; the limit for a collective is ten minutes.
constexpr auto kPatience = 60s;

// The parameter is the number of ranks.
class NcclOnGpus : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    placement_ = place(GetParam());
    if (!placement_.impossible.empty()) GTEST_SKIP() << placement_.impossible;
  }
  // Expects that no rank has an error.
  void run(const std::function<void(Rank)>& body) {
    EXPECT_THAT(run_ranks(placement_.gpus, body), Each(""));
  }
  int ranks() const { return GetParam(); }
  const std::vector<int>& gpus() const { return placement_.gpus; }

 private:
  Placement placement_;
};

// A matcher of GoogleMock would take seconds for megabytes.
bool all_are(unsigned char value, const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char b) { return b == value; });
}

// ---- values

struct Slice {
  std::size_t count;
  std::size_t first;  // elements from the beginning of the allocation
};
constexpr Slice kSlices[] = {{1, 0}, {7, 0}, {1024, 0}, {1 << 20, 0}, {1021, 1}};

// A slice of device memory with one element before and after it that must not change.
class Guarded {
 public:
  Guarded(const Rank& r, ElementType type, const Slice& slice)
      : rank_(r),
        slice_(slice),
        memory_(r.group.allocate((slice.first + slice.count + 1) * size_of(type))),
        all_(r.on_stream(memory_.get(), slice.first + slice.count + 1, type)) {}

  Buffer buffer() const { return all_.slice(slice_.first, slice_.count); }
  template <class Value>
  void set(const Value& value_of) const {
    write(all_, bytes(value_of), rank_.stream);
  }
  template <class Value>
  void expect(const Value& value_of, const std::string& what) const {
    const auto difference =
        first_difference(read(all_, rank_.stream), bytes(value_of), size_of(all_.type));
    EXPECT_FALSE(difference) << what << " of " << slice_.count << " elements of "
                             << to_string(all_.type) << " at " << slice_.first << " on rank "
                             << rank_.rank << ": " << *difference;
  }

 private:
  template <class Value>
  Bytes bytes(const Value& value_of) const {
    constexpr int kGuard = 99;
    return encode(all_.type, all_.count, [&](std::size_t i) {
      const bool inside = i >= slice_.first && i < slice_.first + slice_.count;
      return inside ? value_of(i - slice_.first) : kGuard;
    });
  }

  const Rank& rank_;
  Slice slice_;
  std::shared_ptr<std::byte> memory_;
  Buffer all_;
};

Slice times(const Slice& slice, int ranks) {
  return {slice.count * static_cast<std::size_t>(ranks), slice.first};
}

TEST_P(NcclOnGpus, AllReduce) {
  run([&](Rank r) {
    for (const auto type : kTypes) {
      for (const auto& slice : kSlices) {
        const Guarded data(r, type, slice);
        for (const auto op : kOps) {
          data.set([&](std::size_t i) { return input_value(r.rank, i); });
          r.group.all_reduce(data.buffer(), op).wait();
          data.expect([&](std::size_t i) { return reduced_value(ranks(), op, i); },
                      std::string(to_string(op)));
        }
      }
    }
  });
}

TEST_P(NcclOnGpus, ReduceScatter) {
  run([&](Rank r) {
    for (const auto type : kTypes) {
      for (const auto& slice : kSlices) {
        const Guarded input(r, type, times(slice, ranks()));
        const Guarded output(r, type, slice);
        for (const auto op : kOps) {
          input.set([&](std::size_t i) { return input_value(r.rank, i); });
          output.set([](std::size_t) { return 77; });
          r.group.reduce_scatter(input.buffer(), output.buffer(), op).wait();
          const std::size_t mine = slice.count * static_cast<std::size_t>(r.rank);
          output.expect([&](std::size_t i) { return reduced_value(ranks(), op, mine + i); },
                        std::string(to_string(op)));
        }
      }
    }
  });
}

TEST_P(NcclOnGpus, AllGather) {
  run([&](Rank r) {
    for (const auto type : kTypes) {
      for (const auto& slice : kSlices) {
        const Guarded input(r, type, slice);
        const Guarded output(r, type, times(slice, ranks()));
        input.set([&](std::size_t i) { return input_value(r.rank, i); });
        output.set([](std::size_t) { return 77; });
        r.group.all_gather(input.buffer(), output.buffer()).wait();
        output.expect(
            [&](std::size_t i) {
              return input_value(static_cast<int>(i / slice.count), i % slice.count);
            },
            "all_gather");
      }
    }
  });
}

TEST_P(NcclOnGpus, Broadcast) {
  run([&](Rank r) {
    for (const auto type : kTypes) {
      for (const auto& slice : kSlices) {
        const Guarded data(r, type, slice);
        for (int root = 0; root < ranks(); ++root) {
          data.set([&](std::size_t i) { return input_value(r.rank, i); });
          r.group.broadcast(data.buffer(), root).wait();
          data.expect([&](std::size_t i) { return input_value(root, i); }, "broadcast");
        }
      }
    }
  });
}

TEST_P(NcclOnGpus, MessagesDoNotWaitForEachOther) {
  if (ranks() == 1) GTEST_SKIP() << "a rank sends no messages to itself";
  run([&](Rank r) {
    const int next = (r.rank + 1) % ranks();
    const int previous = (r.rank + ranks() - 1) % ranks();
    for (const auto& slice : kSlices) {
      const Guarded out(r, ElementType::f32, slice);
      const Guarded in(r, ElementType::f32, slice);
      out.set([&](std::size_t i) { return input_value(r.rank, i); });
      in.set([](std::size_t) { return 77; });
      const Work sent = r.group.send(out.buffer(), next);
      const Work received = r.group.receive(in.buffer(), previous);
      sent.wait();
      received.wait();
      in.expect([&](std::size_t i) { return input_value(previous, i); }, "message");
    }
  });
}

// ---- memory

TEST_P(NcclOnGpus, MemoryIsZeroedAndAligned) {
  run([&](Rank r) {
    for (int round = 0; round < 3; ++round) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
        const auto memory = r.group.allocate(bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 4096, 0U);
        const Buffer all = r.on_stream(memory.get(), bytes, ElementType::u8);
        EXPECT_TRUE(all_are(0, read(all, r.stream))) << bytes << " bytes, round " << round;
        fill(all, 0xab);  // for the next round, which may get the same memory
        r.stream.finish();
      }
      r.group.barrier().wait();
    }
  });
}

TEST_P(NcclOnGpus, MemoryMayOutliveTheGroup) {
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<std::byte>> kept(gpus().size());
    run([&](Rank r) { kept[static_cast<std::size_t>(r.rank)] = r.group.allocate(1000); });
    calls().set_device(gpus().front());
    const Stream stream;
    const Buffer all{kept.front().get(), 1000, ElementType::u8, Memory::device, stream.get()};
    fill(all, 7);
    EXPECT_TRUE(all_are(7, read(all, stream)));
  }
}

// ---- streams

// Large enough that a reader that does not wait for the collective sees the old values.
constexpr std::size_t kLarge = std::size_t{2} << 20;

// all_gather() copies from one buffer to another even with one rank, so that the order of streams
// shows. The last element is written last.
struct Gathering {
  explicit Gathering(const Rank& r, int ranks)
      : rank(r),
        own(r.group.allocate(kLarge)),
        all(r.group.allocate(kLarge * static_cast<std::size_t>(ranks))),
        from(r.on_stream(own.get(), kLarge, ElementType::u8)),
        to(r.on_stream(all.get(), kLarge * static_cast<std::size_t>(ranks), ElementType::u8)) {
    fill(from, 1);
    fill(to, 2);
    rank.stream.finish();
    rank.group.barrier().wait();
  }
  Work start() const { return rank.group.all_gather(from, to); }
  // Reads the output on `stream` without other waits.
  void expect(unsigned char value, const Stream& stream) const {
    EXPECT_TRUE(all_are(value, read(to, stream))) << "rank " << rank.rank;
  }

  const Rank& rank;
  std::shared_ptr<std::byte> own;
  std::shared_ptr<std::byte> all;
  Buffer from;
  Buffer to;
  Delay delay;
};

TEST_P(NcclOnGpus, CollectiveWaitsForTheStreamOfItsBuffer) {
  run([&](Rank r) {
    const Gathering g(r, ranks());
    g.delay.put_on(r.stream);
    fill(g.from, 9);  // after the delay
    const Work work = g.start();
    work.wait();
    g.expect(9, r.stream);
    work.wait_host();
    EXPECT_TRUE(work.done());
    EXPECT_GE(work.times().finished, work.times().started);
    EXPECT_GE(work.times().started, work.times().queued);
  });
}

TEST_P(NcclOnGpus, AnotherStreamMayWait) {
  run([&](Rank r) {
    const Gathering g(r, ranks());
    const Stream other;
    g.delay.put_on(r.stream);
    fill(g.from, 9);
    g.start().wait_on(other.get());
    g.expect(9, other);
  });
}

TEST_P(NcclOnGpus, HostWaitsForTheEnd) {
  run([&](Rank r) {
    const Gathering g(r, ranks());
    const Stream other;
    g.delay.put_on(r.stream);
    fill(g.from, 9);
    const Work work = g.start();
    work.wait_host();
    g.expect(9, other);  // this stream has waited for nothing
    EXPECT_EQ(calls().take_last_error(), cuda::kSuccess);
  });
}

TEST_P(NcclOnGpus, ManyCollectivesInFlight) {
  run([&](Rank r) {
    constexpr std::size_t kCollectives = 200;
    std::vector<std::shared_ptr<std::byte>> memory;
    std::vector<Buffer> buffers;
    std::vector<Work> works;
    for (std::size_t i = 0; i < kCollectives; ++i) {
      const std::size_t count = 1 + i * 13;
      memory.push_back(r.group.allocate(count * size_of(ElementType::i32)));
      buffers.push_back(r.on_stream(memory.back().get(), count, ElementType::i32));
      write(buffers.back(), encode(ElementType::i32, count, [](std::size_t) { return 1; }),
            r.stream);
    }
    for (const auto& buffer : buffers) works.push_back(r.group.all_reduce(buffer, ReduceOp::sum));
    r.group.barrier("end").wait();
    for (std::size_t i = 0; i < kCollectives; ++i) {
      EXPECT_TRUE(works[i].done());
      const auto expected =
          encode(ElementType::i32, buffers[i].count, [&](std::size_t) { return ranks(); });
      EXPECT_EQ(read(buffers[i], r.stream), expected);
    }
  });
}

TEST_P(NcclOnGpus, ChannelsShareTheGpu) {
  run([&](Rank r) {
    Group& norm = r.group.channel("norm");
    const Slice slice{1000, 0};
    const Guarded bucket(r, ElementType::f32, slice);
    const Guarded layer(r, ElementType::f32, slice);
    for (int round = 0; round < 20; ++round) {
      bucket.set([&](std::size_t i) { return input_value(r.rank, i); });
      layer.set([](std::size_t) { return 3; });
      const Work work = r.group.all_reduce(bucket.buffer(), ReduceOp::sum);
      norm.all_reduce(layer.buffer(), ReduceOp::max).wait();
      work.wait();
      layer.expect([](std::size_t) { return 3; }, "on a channel");
      bucket.expect([&](std::size_t i) { return reduced_value(ranks(), ReduceOp::sum, i); },
                    "beside a channel");
    }
  });
}

// ---- the end

TEST_P(NcclOnGpus, GroupsOfOneProcessFollowEachOther) {
  for (int round = 0; round < 3; ++round) {
    run([&](Rank r) {
      const Guarded data(r, ElementType::f64, {1000, 0});
      data.set([&](std::size_t i) { return input_value(r.rank, i); });
      r.group.all_reduce(data.buffer(), ReduceOp::sum).wait();
      data.expect([&](std::size_t i) { return reduced_value(ranks(), ReduceOp::sum, i); }, "sum");
    });
  }
}

TEST_P(NcclOnGpus, ErrorAmidCollectivesEndsAllRanks) {
  const auto begin = Clock::now();
  const auto errors = run_ranks(gpus(), [&](Rank r) {
    const Gathering g(r, ranks());
    g.delay.put_on(r.stream);
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) works.push_back(g.start());
    if (r.rank == ranks() - 1) throw std::runtime_error("the disk is full");
    for (const auto& work : works) work.wait_host();
    for (;;) r.group.barrier().wait();
  });
  EXPECT_THAT(errors, Each("the disk is full"));
  EXPECT_LT(Clock::now() - begin, kPatience);
  run([](Rank r) { r.group.barrier().wait(); });  // the GPUs can be used again
}

TEST_P(NcclOnGpus, StreamsThatWaitForAMissingRankAreReleased) {
  if (ranks() == 1) GTEST_SKIP() << "one rank waits for no other";
  std::atomic<bool> waiting{false};
  const auto begin = Clock::now();
  const auto errors = run_ranks(gpus(), [&](Rank r) {
    const Guarded data(r, ElementType::f32, {1 << 16, 0});
    if (r.rank == 1) {
      while (!waiting) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(100ms);  // until the kernel of rank 0 runs and waits
      throw std::runtime_error("the disk is full");
    }
    r.group.all_reduce(data.buffer(), ReduceOp::sum).wait();
    waiting = true;
    r.stream.finish();
    EXPECT_TRUE(r.failures.failed());
    EXPECT_THROW(r.group.all_reduce(data.buffer(), ReduceOp::sum), PeerFailure);
  });
  EXPECT_THAT(errors, Each(testing::AnyOf("", "the disk is full")));
  EXPECT_EQ(errors[1], "the disk is full");
  EXPECT_LT(Clock::now() - begin, kPatience);
  run([](Rank r) { r.group.barrier().wait(); });
}

TEST_P(NcclOnGpus, CollectiveThatDoesNotEndIsReported) {
  if (ranks() == 1) GTEST_SKIP() << "one rank waits for no other";
  std::atomic<bool> reported{false};
  const auto errors = run_ranks(
      gpus(),
      [&](Rank r) {
        const Guarded data(r, ElementType::f32, {1 << 16, 0});
        if (r.rank == 0) {
          const std::string error = error_of(
              [&] { r.group.all_reduce(data.buffer(), ReduceOp::sum, "bucket 7").wait_host(); });
          reported = true;
          throw RuntimeError(error);
        }
        while (!reported) std::this_thread::sleep_for(1ms);
      },
      [](int, NcclOptions& options) {
        options.limits.timeout = 5s;
        options.limits.report_after = 500ms;
      });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("has waited 5.0 s for all_reduce #"),
                               HasSubstr("(bucket 7) on its GPU")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnGpus, testing::Values(1, 2),
                         [](const auto& test) { return test.param == 1 ? "One" : "Two"; });

// ---- the start

class NcclStartOnGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().missing.empty()) GTEST_SKIP() << machine().missing;
  }
};

TEST_F(NcclStartOnGpus, NamesAGpuThatThisProcessDoesNotSee) {
  const int gpus = machine().gpus;
  const auto errors = run_ranks({gpus}, [](Rank) { FAIL() << "the group has started"; });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("this process sees " + std::to_string(gpus) + " GPU"),
                                 HasSubstr("the one with number " + std::to_string(gpus)))));
}

TEST_F(NcclStartOnGpus, RefusesTwoRanksOnOneGpu) {
  if (environment("NCCL_MULTI_RANK_GPU_ENABLE") == "1") {
    GTEST_SKIP() << "NCCL_MULTI_RANK_GPU_ENABLE=1 allows it";
  }
  const auto errors = run_ranks({0, 0}, [](Rank) { FAIL() << "the group has started"; });
  EXPECT_THAT(errors, Each(HasSubstr("both use the GPU ")));
}

}  // namespace
}  // namespace ddp::comm::gpu
