// SPDX-License-Identifier: Apache-2.0
// Embeddings whose gradients have only the rows that were used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kWords = 12;

enum class Gradient : std::uint8_t { dense, sparse };

// Two tables and a layer, whose tables may be left out.
struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(Gradient gradient)
      : words(torch::nn::EmbeddingOptions(kWords, 3).sparse(gradient == Gradient::sparse)),
        bags(torch::nn::EmbeddingBagOptions(kWords, 3)
                 .mode(torch::kSum)
                 .sparse(gradient == Gradient::sparse)) {
    register_module("words", words);
    register_module("bags", bags);
    register_module("layer", layer);
  }
  torch::Tensor forward(const torch::Tensor& ids, const std::string& used = "wb") {
    auto x = torch::ones({1, 3});
    if (used.find('w') != std::string::npos) x = x + words(ids).sum(0, true);
    if (used.find('b') != std::string::npos) {
      x = x + bags->forward(ids, torch::zeros({1}, torch::kInt64));
    }
    return layer(torch::tanh(x));
  }
  torch::nn::Embedding words;
  torch::nn::EmbeddingBag bags;
  torch::nn::Linear layer{3, 2};
};
TORCH_MODULE(Words);

Words make_words(Gradient gradient) {
  return seeded([&] { return Words(gradient); });
}

using Ids = std::vector<std::int64_t>;

torch::Tensor tensor_of(const Ids& ids) {
  return torch::tensor(ids, torch::kInt64);
}

// Of one micro-batch of a rank.
struct Share {
  Ids ids;
  std::string used = "wb";
};
using Shares = std::vector<std::vector<Share>>;  // [rank][micro-batch]

// Gradients as dense tensors.
std::map<std::string, torch::Tensor> dense_gradients(const torch::nn::Module& module) {
  auto gradients = gradients_of(module);
  for (auto& [name, gradient] : gradients) {
    if (gradient.is_sparse()) gradient = gradient.to_dense();
  }
  return gradients;
}

// One process with dense gradients that runs all micro-batches of all ranks.
std::map<std::string, torch::Tensor> gradients_of_all(const Shares& shares) {
  auto net = make_words(Gradient::dense);
  std::size_t parts = 0;
  for (const auto& of_rank : shares) parts += of_rank.size();
  for (const auto& of_rank : shares) {
    for (const auto& [ids, used] : of_rank) {
      const auto loss = loss_of(net->forward(tensor_of(ids), used));
      loss.backward(torch::full_like(loss, 1.0 / static_cast<double>(parts)));
    }
  }
  return gradients_of(*net);
}

DataParallelOptions compared() {
  auto options = small_buckets();
  options.check_parameters_every = 1;
  return options;
}

void expect_parity(const Shares& shares, const DataParallelOptions& options) {
  const auto expected = gradients_of_all(shares);
  run_ranks(static_cast<int>(shares.size()), [&](comm::Group& group) {
    auto net = make_words(Gradient::sparse);
    DistributedDataParallel replica(*net, group, options);
    const auto& mine = shares[static_cast<std::size_t>(group.rank())];
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto step = replica.begin_step(static_cast<int>(mine.size()));
      for (const auto& [ids, used] : mine) {
        step.backward(loss_of(net->forward(tensor_of(ids), used)));
      }
      for (const auto& table : {net->words->weight, net->bags->weight}) {
        EXPECT_TRUE(!table.grad().defined() || table.grad().is_sparse());
      }
      expect_close(dense_gradients(*net), expected);
    }
    EXPECT_EQ(replica.bucket_count(), 2U);
  });
}

class SparseGradients : public testing::Test {
 protected:
  void SetUp() override {
    if (on_device()) GTEST_SKIP() << "sparse gradients are averaged on CPUs only";
  }
};

TEST_F(SparseGradients, EqualDenseOnesOfOneProcess) {
  expect_parity({{{{1, 2, 2}}}, {{{2, 5, 11, 0}}}, {{{7}}}}, compared());
}

// More rows of all ranks than the table has: it is summed as a whole.
TEST_F(SparseGradients, EqualDenseOnesIfRanksUseMostRows) {
  expect_parity({{{{1, 2, 2, 5, 8, 9}}}, {{{2, 5, 11, 0}}}, {{Ids{}}}, {{{7}}}}, compared());
}

TEST_F(SparseGradients, EqualDenseOnesAfterAccumulation) {
  expect_parity({{{{1, 2}}, {{2, 3}}}, {{{4}}, {{4, 4, 9}}}}, compared());
}

TEST_F(SparseGradients, MayBeEmptyOnSomeRanks) {
  expect_parity({{{Ids{}}}, {{{3, 4}}}, {{Ids{}}}}, compared());
}

TEST_F(SparseGradients, MayBeEmptyOnAllRanks) {
  expect_parity({{{Ids{}}}, {{Ids{}}}}, compared());
}

TEST_F(SparseGradients, MayBeUnusedBySomeRanksOrAll) {
  for (const bool is_static : {false, true}) {
    auto options = compared();
    options.allow_unused = !is_static;
    options.static_graph = is_static;
    expect_parity({{{{1, 2}, "w"}}, {{{2}, "wb"}}}, options);
    expect_parity({{{{1, 2}, "w"}}, {{{2}, "b"}}, {{{3}, ""}}}, options);
    expect_parity({{{{1, 2}, "w"}}, {{{2}, "w"}}}, options);
    expect_parity({{{{1}, ""}}, {{{2}, ""}}}, options);
  }
}

TEST_F(SparseGradients, AreNotRoundedByACommunicationHook) {
  const Shares shares = {{{{1, 2}}}, {{{2, 5}}}};
  const auto expected = gradients_of_all(shares);
  run_ranks(2, [&](comm::Group& group) {
    auto net = make_words(Gradient::sparse);
    auto options = compared();
    options.hook = hooks::bf16;
    DistributedDataParallel replica(*net, group, options);
    auto step = replica.begin_step();
    step.backward(
        loss_of(net->forward(tensor_of(shares[static_cast<std::size_t>(group.rank())][0].ids))));
    const auto gradients = dense_gradients(*net);
    EXPECT_TRUE(torch::allclose(gradients.at("words.weight"), expected.at("words.weight"), 1e-5));
    EXPECT_FALSE(torch::allclose(gradients.at("layer.weight"), expected.at("layer.weight"), 1e-5));
    EXPECT_TRUE(torch::allclose(gradients.at("layer.weight"), expected.at("layer.weight"), 1e-2));
  });
}

TEST_F(SparseGradients, HaveTheNormOfOneProcess) {
  const Shares shares = {{{{1, 2}}}, {{{2, 5}}}};
  auto alone = make_words(Gradient::dense);
  for (const auto& of_rank : shares) {
    const auto loss = loss_of(alone->forward(tensor_of(of_rank[0].ids)));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const double norm = torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
  run_ranks(2, [&](comm::Group& group) {
    auto net = make_words(Gradient::sparse);
    DistributedDataParallel replica(*net, group, compared());
    auto step = replica.begin_step();
    step.backward(
        loss_of(net->forward(tensor_of(shares[static_cast<std::size_t>(group.rank())][0].ids))));
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01), norm, 1e-4 * norm);
  });
}

// Rank r has r + 1 batches.
TEST_F(SparseGradients, MayEndEarlierOnSomeRanks) {
  constexpr int kRanks = 3;
  auto alone = make_words(Gradient::dense);
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.1);
  for (int s = 0; s < kRanks; ++s) {
    alone_optimizer.zero_grad();
    for (int rank = s; rank < kRanks; ++rank) {
      const auto loss = loss_of(alone->forward(tensor_of({rank, s})));
      loss.backward(torch::full_like(loss, 1.0 / (kRanks - s)));
    }
    alone_optimizer.step();
  }
  const auto expected = values_of(*alone);
  run_ranks(kRanks, [&](comm::Group& group) {
    auto net = make_words(Gradient::sparse);
    DistributedDataParallel replica(*net, group, compared());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int s = 0; auto step = replica.begin_uneven_step(s <= group.rank()); ++s) {
      if (step->has_data()) {
        step->backward(loss_of(net->forward(tensor_of({group.rank(), s}))));
      } else {
        step->without_data();
      }
      step->apply(optimizer);
    }
    expect_close(values_of(*net), expected);
  });
}

template <class Optimizer>
std::map<std::string, torch::Tensor> values_after_training(Gradient gradient, bool by_bucket) {
  std::map<std::string, torch::Tensor> values;
  run_ranks(2, [&](comm::Group& group) {
    auto net = make_words(gradient);
    DistributedDataParallel replica(*net, group, compared());
    Optimizer optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    for (int i = 0; i < 4; ++i) {
      auto step = replica.begin_step();
      const auto loss = loss_of(net->forward(tensor_of({i, 2 * group.rank(), 5})));
      if (by_bucket) {
        step.backward_and_apply(loss, optimizer);
      } else {
        step.backward(loss);
        step.apply(optimizer);
      }
    }
    replica.require_same_parameters();
    if (group.rank() == 1) values = values_of(*net);
  });
  return values;
}

TEST_F(SparseGradients, TrainTheSameModelAsDenseOnes) {
  const auto expected = values_after_training<torch::optim::SGD>(Gradient::dense, false);
  for (const bool by_bucket : {false, true}) {
    expect_close(values_after_training<torch::optim::SGD>(Gradient::sparse, by_bucket), expected);
    expect_close(values_after_training<optim::SGD>(Gradient::sparse, by_bucket), expected);
  }
}

TEST_F(SparseGradients, AreRefusedByAdamBeforeAnyParameterChanges) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_words(Gradient::sparse);
                DistributedDataParallel replica(*net, group, compared());
                optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.1));
                const auto before = values_of(*net);
                auto step = replica.begin_step();
                const auto error = error_of([&] {
                  step.backward_and_apply(loss_of(net->forward(tensor_of({1}))), optimizer);
                });
                EXPECT_TRUE(torch::equal(net->layer->weight, before.at("layer.weight")));
                throw RuntimeError(error);
              }),
              HasSubstr("Adam does not support sparse gradients"));
}

TEST_F(SparseGradients, ThatAreMissingAreNamed) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_words(Gradient::sparse);
                DistributedDataParallel replica(*net, group, compared());
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(tensor_of({1}), "w")));
              }),
              AllOf(HasSubstr("no gradient for 1 of 4 parameters (bags.weight)"),
                    HasSubstr("allow_unused")));
}

TEST_F(SparseGradients, MustBeSparseOnAllRanks) {
  EXPECT_THAT(error_on_each_of_three_ranks([](comm::Group& group) {
                auto net = make_words(group.rank() == 1 ? Gradient::dense : Gradient::sparse);
                const DistributedDataParallel replica(*net, group, compared());
              }),
              AllOf(HasSubstr("the model of rank 1 differs"),
                    HasSubstr("'words.weight (sparse gradient) Float [12, 3]"),
                    HasSubstr("'words.weight Float [12, 3]")));
}

TEST_F(SparseGradients, OfAParameterThatIsAlsoUsedInAnotherWayAreRefused) {
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = make_words(Gradient::sparse);
                DistributedDataParallel replica(*net, group, compared());
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(tensor_of({1}))) + net->words->weight.sum());
              }),
              HasSubstr("parameter 'words.weight' belongs to a layer with sparse gradients, but"));
}

TEST_F(SparseGradients, OfAFunctionAreRefused) {
  EXPECT_THAT(
      error_of_three_ranks([](comm::Group& group) {
        auto net = make_words(Gradient::dense);
        DistributedDataParallel replica(*net, group, compared());
        auto step = replica.begin_step();
        step.backward(torch::embedding(net->words->weight, tensor_of({1}), -1, false, true).sum());
      }),
      AllOf(HasSubstr("parameter 'words.weight' has a sparse gradient"),
            HasSubstr("only for the weight of a torch::nn::Embedding")));
}

TEST(SparseGradientsOnADevice, AreRefused) {
  if (!on_device()) GTEST_SKIP() << "there is no device";
  EXPECT_THAT(error_on_each_of_three_ranks([](comm::Group& group) {
                auto layer = on_test_device(
                    torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 2).sparse(true)));
                const DistributedDataParallel replica(*layer, group);
              }),
              AllOf(HasSubstr("parameter 'weight' is on "), HasSubstr("on CPUs only")));
}

}  // namespace
}  // namespace ddp::test
