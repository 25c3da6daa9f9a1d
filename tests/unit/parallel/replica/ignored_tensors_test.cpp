// SPDX-License-Identifier: Apache-2.0
// Parameters and buffers that a replica leaves to each rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// Every rank has a b of its own.
Branches make_branches_with_own_b(const comm::Group& group) {
  auto net = make_branches();
  const torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) parameter.add_(group.rank());
  return net;
}

DataParallelOptions ignoring(std::vector<std::string> entries) {
  auto options = small_buckets();
  options.check_parameters_every = 1;
  options.ignore = std::move(entries);
  return options;
}

torch::Tensor loss_of_rank(Branches& net, int rank) {
  return loss_of(net->a(input_of(rank))) + loss_of(net->b(input_of(rank))) +
         loss_of(net->c(input_of(rank)));
}

// The gradients of each rank's loss when only b differs between ranks.
std::map<std::string, torch::Tensor> gradients_alone(int rank) {
  auto net = make_branches();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->b->parameters()) parameter.add_(rank);
  }
  loss_of_rank(net, rank).backward();
  return gradients_of(*net);
}

enum class Update : std::uint8_t { after_backward, by_bucket };

void train_with_own_b(comm::Group& group, DataParallelOptions options, Update update) {
  auto net = make_branches_with_own_b(group);
  const auto own = values_of(*net).at("b.weight");
  DistributedDataParallel replica(*net, group, options);
  EXPECT_EQ(replica.bucket_count(), 4U);
  EXPECT_TRUE(replica.ignores(net->b->weight));
  EXPECT_FALSE(replica.ignores(net->a->weight));
  EXPECT_TRUE(torch::equal(net->b->weight.cpu(), own));
  auto shared = make_branches();  // as rank 0 has it
  EXPECT_TRUE(torch::equal(net->a->weight, shared->a->weight));
  torch::optim::SGD optimizer(net->parameters(), 0);
  for (int i = 0; i < 3; ++i) {
    auto step = replica.begin_step();
    EXPECT_FALSE(net->b->weight.grad().defined());
    const auto loss = loss_of_rank(net, group.rank());
    if (update == Update::by_bucket) {
      step.backward_and_apply(loss, optimizer);
    } else {
      step.backward(loss);
      step.apply(optimizer);
    }
    auto expected = gradients_alone(group.rank());
    for (const char* name : {"a.weight", "a.bias", "c.weight", "c.bias"}) {
      expected.at(name).zero_();
      for (int r = 0; r < 3; ++r) expected.at(name) += gradients_alone(r).at(name) / 3;
    }
    for (const char* name : {"b.weight", "b.bias"}) expected.at(name) /= 3;
    expect_close(gradients_of(*net), expected);
  }
  replica.require_same_parameters();
}

TEST(IgnoredParameters, BelongToEachRank) {
  for (const auto update : {Update::after_backward, Update::by_bucket}) {
    run_ranks(3, [&](auto& group) { train_with_own_b(group, ignoring({"b.*"}), update); });
  }
}

TEST(IgnoredParameters, BelongToEachRankWithTheSearchForUnusedOnes) {
  for (const bool is_static : {false, true}) {
    auto options = ignoring({"b.weight", "b.bias"});
    options.allow_unused = !is_static;
    options.static_graph = is_static;
    run_ranks(3, [&](auto& group) { train_with_own_b(group, options, Update::after_backward); });
  }
}

TEST(IgnoredParameters, NeedNotBeUsed) {
  run_ranks(2, [](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, ignoring({"b.*"}));
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "ac")));
    EXPECT_EQ(gradients_of(*net).size(), 4U);
  });
}

TEST(IgnoredParameters, MayDifferInShapeAndBeAddedLater) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_branches();
                net->register_parameter("own", on_test_device(torch::ones({group.rank() + 1})));
                DistributedDataParallel replica(*net, group, ignoring({"own*"}));
                if (group.rank() == 1) {
                  net->register_parameter("own_too", on_test_device(torch::ones({1})));
                }
                for (int i = 0; i < 2; ++i) {
                  auto step = replica.begin_step();
                  step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
                }
                replica.require_same_parameters();
              }),
              IsEmpty());
}

TEST(IgnoredBuffers, DoNotFollowRankZero) {
  run_ranks(2, [](comm::Group& group) {
    auto norm = on_test_device(torch::nn::BatchNorm1d(4));
    norm->running_mean.fill_(group.rank());
    norm->running_var.fill_(group.rank());
    DistributedDataParallel replica(*norm, group, ignoring({"running_mean"}));
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(norm->running_mean[0].item<float>(), static_cast<float>(group.rank()));
      EXPECT_EQ(norm->running_var[0].item<float>(), 0);
      norm->running_var.fill_(group.rank());
      replica.begin_step();
    }
  });
}

struct WrongList {
  const char* name;
  std::vector<std::string> (*of_rank)(int rank);
  const char* told;
};

class ListOfIgnoredTensors : public testing::TestWithParam<WrongList> {};

TEST_P(ListOfIgnoredTensors, IsAnErrorOnAllRanksIfItIsWrong) {
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    auto net = make_branches();
    if (group.rank() > 0) net->register_buffer("own_count", on_test_device(torch::ones({1})));
    net->register_parameter("tied", net->c->bias);
    const DistributedDataParallel replica(*net, group, ignoring(GetParam().of_rank(group.rank())));
  });
  EXPECT_THAT(text, HasSubstr(GetParam().told));
}

using Names = std::vector<std::string>;

INSTANTIATE_TEST_SUITE_P(
    Mistakes, ListOfIgnoredTensors,
    testing::Values(
        WrongList{"no_such_name",
                  [](int) {
                    return Names{"b.weight", "b.weigth"};
                  },
                  "ignore has 'b.weigth', but the model has no such parameter or buffer, only such "
                  "as 'tied'; give a full name, or the beginning of names and a '*' (rank 0)"},
        WrongList{"no_such_prefix", [](int) { return Names{"d.*"}; }, "ignore has 'd.*', but"},
        WrongList{"only_a_beginning", [](int) { return Names{"b"}; }, "ignore has 'b', but"},
        WrongList{"not_on_rank_0", [](int) { return Names{"own_*"}; },
                  "ignore has 'own_*', but the model has no such"},
        WrongList{"differs",
                  [](int rank) {
                    return rank == 2 ? Names{"b.*", "a.bias"} : Names{"a.bias"};
                  },
                  "ignore has 'a.bias', 'b.*' on rank 2 but 'a.bias' on rank 0; give all ranks"},
        WrongList{"none_on_rank_0", [](int rank) { return rank == 0 ? Names{} : Names{"a.bias"}; },
                  "ignore has 'a.bias' on rank 1 but nothing on rank 0"},
        WrongList{"tied", [](int) { return Names{"c.bias"}; },
                  "ignore has 'c.bias' but not 'tied', although they are the same tensor"}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(ListOfIgnoredTensors, MayBeInAnyOrderAndRepeatItself) {
  run_ranks(2, [](comm::Group& group) {
    auto net = make_branches();
    const auto list =
        group.rank() == 0 ? Names{"a.bias", "b.bias"} : Names{"b.bias", "a.bias", "b.bias"};
    const DistributedDataParallel replica(*net, group, ignoring(list));
    EXPECT_EQ(replica.bucket_count(), 4U);
  });
}

}  // namespace
}  // namespace ddp::test
