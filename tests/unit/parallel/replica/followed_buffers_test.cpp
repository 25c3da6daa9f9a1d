// SPDX-License-Identifier: Apache-2.0
// Buffers that are registered or removed after a replica was created.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// With buffers from the start, or without any.
enum class Others : std::uint8_t { none, some };

Branches make_branches_with(Others others) {
  auto net = make_branches();
  if (others == Others::some) net->register_buffer("first", on_test_device(torch::zeros({2})));
  return net;
}

torch::Tensor register_late(Branches& net, const std::string& name, double value,
                            std::int64_t size = 3) {
  return net->register_buffer(name, on_test_device(torch::full({size}, value)));
}

void run_step(DistributedDataParallel& replica, Branches& net, int rank) {
  auto step = replica.begin_step();
  step.backward(loss_of(net->forward(input_of(rank), "abc")));
}

std::uint64_t collectives_of_step(DistributedDataParallel& replica, Branches& net,
                                  comm::Group& group) {
  const auto begun = [&] {
    std::uint64_t sum = 0;
    for (const auto& [channel, count] : group.flight_recorder().snapshot().collectives_begun) {
      sum += count;
    }
    return sum;
  };
  const auto before = begun();
  run_step(replica, net, group.rank());
  return begun() - before;
}

TEST(BuffersAddedLater, FollowRankZeroFromTheNextStepOn) {
  for (const auto others : {Others::none, Others::some}) {
    run_ranks(3, [&](comm::Group& group) {
      auto net = make_branches_with(others);
      DistributedDataParallel replica(*net, group);
      for (const char* name : {"early", "late"}) {
        const auto buffer = register_late(net, name, group.rank() + 1);
        const auto first = collectives_of_step(replica, net, group);
        EXPECT_EQ(buffer[2].item<float>(), 1);
        buffer.add_(group.rank());
        // The ranks agree on a change only in the step that finds it.
        EXPECT_LT(collectives_of_step(replica, net, group), first);
        EXPECT_EQ(buffer[2].item<float>(), 1);
        buffer.add_(group.rank());
      }
    });
  }
}

TEST(BuffersAddedLater, StayAsTheyAreIfNoneAreBroadcast) {
  run_ranks(2, [](comm::Group& group) {
    auto net = make_branches_with(Others::some);
    DataParallelOptions options;
    options.broadcast_buffers = false;
    DistributedDataParallel replica(*net, group, options);
    const auto buffer = register_late(net, "late", group.rank());
    run_step(replica, net, group.rank());
    EXPECT_EQ(buffer[0].item<float>(), static_cast<float>(group.rank()));
  });
}

TEST(BuffersAddedLater, MayBeIgnored) {
  run_ranks(2, [](comm::Group& group) {
    auto net = make_branches_with(Others::some);
    DataParallelOptions options;
    options.ignore = {"first*"};
    DistributedDataParallel replica(*net, group, options);
    const auto buffer = register_late(net, "first_of_rank", group.rank());
    run_step(replica, net, group.rank());
    EXPECT_EQ(buffer[0].item<float>(), static_cast<float>(group.rank()));
  });
}

TEST(BuffersAddedLater, MayAlsoGoAway) {
  run_ranks(2, [](comm::Group& group) {
    auto net = make_branches_with(Others::some);
    auto norm =
        on_test_device(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(3).affine(false)));
    net->register_module("norm", norm);
    DistributedDataParallel replica(*net, group);
    run_step(replica, net, group.rank());
    net->unregister_module("norm");
    run_step(replica, net, group.rank());
    norm->running_mean.fill_(group.rank());
    run_step(replica, net, group.rank());
    EXPECT_EQ(norm->running_mean[0].item<float>(), static_cast<float>(group.rank()));
  });
}

struct Differing {
  const char* name;
  void (*change)(Branches& net, int rank);
  const char* told;
};

class BuffersThatDiffer : public testing::TestWithParam<std::tuple<Differing, Others>> {};

TEST_P(BuffersThatDiffer, AreAnErrorThatNamesABufferAndARank) {
  const auto& c = std::get<Differing>(GetParam());
  const auto others = std::get<Others>(GetParam());
  std::vector<std::string> texts(3);
  error_of_three_ranks([&](comm::Group& group) {
    texts[static_cast<std::size_t>(group.rank())] = error_of([&] {
      auto net = make_branches_with(others);
      DistributedDataParallel replica(*net, group);
      run_step(replica, net, group.rank());
      c.change(net, group.rank());
      run_step(replica, net, group.rank());
    });
    throw RuntimeError(texts[static_cast<std::size_t>(group.rank())]);
  });
  for (const auto& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr(c.told), HasSubstr("changed before step 2"),
                            HasSubstr("register the same buffers on all ranks")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Changes, BuffersThatDiffer,
    testing::Combine(
        testing::Values(Differing{"only_on_rank_0",
                                  [](Branches& net, int rank) {
                                    if (rank == 0) register_late(net, "late", 0);
                                  },
                                  "on rank 0 changed before step 2 ('late' was registered)"},
                        Differing{"not_on_rank_0",
                                  [](Branches& net, int rank) {
                                    if (rank != 0) register_late(net, "late", 0);
                                  },
                                  "('late' was registered)"},
                        Differing{"other_name",
                                  [](Branches& net, int rank) {
                                    register_late(net, rank == 1 ? "later" : "late", 0);
                                  },
                                  "was registered)"},
                        Differing{"other_size",
                                  [](Branches& net, int rank) {
                                    register_late(net, "late", 0, rank + 1);
                                  },
                                  "('late' was registered)"}),
        testing::Values(Others::none, Others::some)),
    [](const auto& param_info) {
      return std::string(std::get<0>(param_info.param).name) +
             (std::get<1>(param_info.param) == Others::none ? "" : "_of_several");
    });

}  // namespace
}  // namespace ddp::test
