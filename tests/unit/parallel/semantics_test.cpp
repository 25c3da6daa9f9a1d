// What a real model does to a reducer: parameters that take no part, that are shared, that get
// several gradients; data that ends early; buffers; ranks that lose step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <mutex>
#include <thread>

#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/parallel/activation_checkpoint.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

// Three branches; the caller says which take part.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
  }
  torch::Tensor forward(const torch::Tensor& x, const std::string& used) {
    torch::Tensor sum = torch::zeros({x.size(0), 3});
    if (used.find('a') != std::string::npos) sum = sum + a(x);
    if (used.find('b') != std::string::npos) sum = sum + b(x);
    if (used.find('c') != std::string::npos) sum = sum + c(x);
    return sum;
  }
  torch::nn::Linear a{4, 3};
  torch::nn::Linear b{4, 3};
  torch::nn::Linear c{4, 3};
};
TORCH_MODULE(Branches);

// The generator is shared by all threads.
template <class Make>
auto seeded(const Make& make) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  return make();
}

Branches make_branches() {
  return seeded([] { return Branches(); });
}

torch::Tensor input_of(int rank) {
  return torch::arange(8, torch::kFloat32).view({2, 4}) * 0.1 + rank;
}

torch::Tensor loss_of(const torch::Tensor& output) {
  return output.pow(2).mean();
}

DataParallelOptions small_buckets() {
  DataParallelOptions options;
  options.buckets = {1, 1};
  return options;
}

// Gradients by name; undefined ones are left out.
std::map<std::string, torch::Tensor> gradients_of(const torch::nn::Module& module) {
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& p : module.named_parameters()) {
    if (p.value().grad().defined()) gradients[p.key()] = p.value().grad().clone();
  }
  return gradients;
}

void expect_close(const std::map<std::string, torch::Tensor>& a,
                  const std::map<std::string, torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, gradient] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(torch::allclose(gradient, b.at(name), 1e-5, 1e-7)) << name;
  }
}

// What one process gets from all micro-batches of all ranks: the sum of the gradients of the parts,
// each weighted alike.
std::map<std::string, torch::Tensor> reference(const std::vector<std::vector<std::string>>& use) {
  auto net = make_branches();
  std::size_t parts = 0;
  for (const auto& of_rank : use) parts += of_rank.size();
  for (std::size_t rank = 0; rank < use.size(); ++rank) {
    for (const auto& used : use[rank]) {
      const auto loss = loss_of(net->forward(input_of(static_cast<int>(rank)), used));
      loss.backward(torch::full_like(loss, 1.0 / static_cast<double>(parts)));
    }
  }
  return gradients_of(*net);
}

// use[rank][micro_batch]: the branches. Three steps, so that what is learned in the first is used.
void check_unused(const std::vector<std::vector<std::string>>& use, DataParallelOptions options) {
  const auto expected = reference(use);
  comm::run_ranks(static_cast<int>(use.size()), [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, options);
    const auto& mine = use[static_cast<std::size_t>(group.rank())];
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto step = replica.begin_step(static_cast<int>(mine.size()));
      for (const auto& used : mine) {
        step.backward(loss_of(net->forward(input_of(group.rank()), used)));
      }
      expect_close(gradients_of(*net), expected);
    }
  });
}

struct UnusedCase {
  const char* name;
  std::vector<std::vector<std::string>> use;
};

class UnusedParameters : public testing::TestWithParam<UnusedCase> {};

TEST_P(UnusedParameters, GradientsAreThoseOfOneProcess) {
  auto options = small_buckets();
  options.allow_unused = true;
  check_unused(GetParam().use, options);
}

TEST_P(UnusedParameters, AlsoInOneBucketAndLearnedOnce) {
  DataParallelOptions options;
  options.static_graph = true;
  check_unused(GetParam().use, options);
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, UnusedParameters,
    testing::Values(UnusedCase{"all_used", {{"abc"}, {"abc"}}},
                    UnusedCase{"by_nobody", {{"ab"}, {"ab"}}},
                    UnusedCase{"by_one_rank", {{"abc"}, {"ac"}}},
                    UnusedCase{"each_another", {{"ab"}, {"bc"}, {"a"}}},
                    // pytorch/pytorch#69031: used early in the step, not in its last micro-batch
                    UnusedCase{"only_in_the_first_micro_batch", {{"abc", "a"}, {"ab", "a"}}},
                    UnusedCase{"nothing_in_common", {{"a", "b"}, {"b", "c"}}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(UnusedParameters, AreAnErrorThatNamesThemUnlessAllowed) {
  std::string text;
  try {
    comm::run_ranks(2, [&](comm::Group& group) {
      auto net = make_branches();
      DistributedDataParallel replica(*net, group);
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(0), group.rank() == 0 ? "abc" : "ab")));
    });
  } catch (const RuntimeError& e) {
    text = e.what();
  }
  EXPECT_THAT(text, AllOf(HasSubstr("no gradient for 2 of 6 parameters (c.weight, c.bias)"),
                          HasSubstr("allow_unused")));
}

TEST(UnusedParameters, AGraphThatChangesIsNotStatic) {
  std::string text;
  try {
    comm::run_ranks(2, [&](comm::Group& group) {
      auto net = make_branches();
      auto options = small_buckets();
      options.static_graph = true;
      DistributedDataParallel replica(*net, group, options);
      for (const char* used : {"abc", "ab"}) {
        auto step = replica.begin_step();
        step.backward(loss_of(net->forward(input_of(0), used)));
      }
    });
  } catch (const RuntimeError& e) {
    text = e.what();
  }
  EXPECT_THAT(text, AllOf(HasSubstr("c.weight"), HasSubstr("static_graph")));
}

TEST(UnusedParameters, AnOutputThatIsIgnoredLeavesNoTrace) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group);
    replica.begin_step();  // and nothing comes of it, on any rank
    net->forward(input_of(0), "abc");
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_EQ(gradients_of(*net).size(), 6U);
  });
}

// One weight used by two layers, registered twice.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("embedding", torch::randn({4, 4}));
    register_parameter("head", weight);
    bias = register_parameter("bias", torch::randn({4}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::mm(torch::tanh(torch::mm(x, weight) + bias), weight.t());
  }
  torch::Tensor weight;
  torch::Tensor bias;
};
TORCH_MODULE(Tied);

TEST(DataParallelSemantics, TiedWeightsAreReducedOnce) {
  auto alone = seeded([] { return Tied(); });
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank)));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const auto expected = gradients_of(*alone);
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Tied(); });
    DistributedDataParallel replica(*net, group, small_buckets());
    EXPECT_EQ(replica.bucket_count(), 2U);
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()))));
    expect_close(gradients_of(*net), expected);
  });
}

// A layer in double precision after one in single precision: what cannot share a bucket.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    register_module("single", single);
    register_module("twice", twice);
    twice->to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return twice(torch::tanh(single(x)).to(torch::kFloat64));
  }
  torch::nn::Linear single{4, 3};
  torch::nn::Linear twice{3, 2};
};
TORCH_MODULE(Mixed);

TEST(DataParallelSemantics, GradientsOfDifferentTypesHaveBucketsOfTheirOwn) {
  auto alone = seeded([] { return Mixed(); });
  for (int rank = 0; rank < 3; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank)));
    loss.backward(torch::full_like(loss, 1.0 / 3));
  }
  const auto expected = gradients_of(*alone);
  comm::run_ranks(3, [&](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    DistributedDataParallel replica(*net, group);
    EXPECT_EQ(replica.bucket_count(), 2U);
    for (int i = 0; i < 2; ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()))));
      expect_close(gradients_of(*net), expected);
    }
    EXPECT_EQ(net->twice->weight.grad().scalar_type(), torch::kFloat64);
  });
}

TEST(DataParallelSemantics, FrozenParametersAreNotSent) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    for (auto& p : net->b->parameters()) p.requires_grad_(false);
    DistributedDataParallel replica(*net, group, small_buckets());
    EXPECT_EQ(replica.bucket_count(), 4U);
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_FALSE(net->b->weight.grad().defined());
  });
}

TEST(DataParallelSemantics, BucketsFollowTheOrderThatBackwardReallyHas) {
  // Registered in the order of use, backwards: the first plan is exactly wrong.
  struct BackwardsImpl : torch::nn::Module {
    BackwardsImpl() {
      register_module("last", last);
      register_module("middle", middle);
      register_module("first", first);
    }
    torch::Tensor forward(const torch::Tensor& x) {
      return last(torch::tanh(middle(torch::tanh(first(x)))));
    }
    torch::nn::Linear first{torch::nn::LinearOptions(4, 4).bias(false)};
    torch::nn::Linear middle{torch::nn::LinearOptions(4, 4).bias(false)};
    torch::nn::Linear last{torch::nn::LinearOptions(4, 4).bias(false)};
  };
  std::vector<std::map<std::string, torch::Tensor>> results;
  for (const bool rebuild : {false, true}) {
    comm::run_ranks(2, [&](comm::Group& group) {
      auto net = seeded([] { return std::make_shared<BackwardsImpl>(); });
      auto options = small_buckets();
      options.rebuild_buckets = rebuild;
      DistributedDataParallel replica(*net, group, options);
      std::string first_sent;
      for (int i = 0; i < 3; ++i) {
        auto step = replica.begin_step(2);
        for (int m = 0; m < 2; ++m) {
          step.backward(loss_of(net->forward(input_of(2 * m + group.rank()))));
        }
        first_sent = replica.communication().front().label;
      }
      if (group.rank() != 0) return;
      EXPECT_THAT(first_sent, HasSubstr(rebuild ? "last.weight" : "first.weight"));
      results.push_back(gradients_of(*net));
    });
  }
  // Accumulated over a rebuild, nothing is lost (InfiniTensor/InfiniTrain#183).
  expect_close(results[0], results[1]);
}

TEST(DataParallelSemantics, ClippingByTheGlobalNormIsThatOfOneProcess) {
  auto alone = make_branches();
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = loss_of(alone->forward(input_of(rank), "abc"));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const double norm = torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
  ASSERT_GT(norm, 0.1);  // so that it does something
  const auto expected = gradients_of(*alone);
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, small_buckets());
    auto step = replica.begin_step();
    step.backward(loss_of(net->forward(input_of(group.rank()), "abc")));
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01), norm, 1e-4 * norm);
    expect_close(gradients_of(*net), expected);
  });
}

TEST(DataParallelSemantics, BuffersFollowRankZero) {
  for (const bool broadcast : {true, false}) {
    comm::run_ranks(2, [&](comm::Group& group) {
      torch::nn::BatchNorm1d norm(4);
      DataParallelOptions options;
      options.broadcast_buffers = broadcast;
      DistributedDataParallel replica(*norm, group, options);
      for (int i = 0; i < 2; ++i) {
        auto step = replica.begin_step();
        step.backward(loss_of(norm->forward(input_of(10 * group.rank()))));
      }
      replica.begin_step();
      const float mean = norm->running_mean[0].item<float>();
      if (group.rank() != 1) return;
      EXPECT_EQ(mean < 1, broadcast) << mean;
    });
  }
}

// Rank r has r + 1 batches.
TEST(UnevenData, EqualsOneProcessThatSeesTheBatchesOfEachStep) {
  constexpr int kRanks = 3;
  auto alone = make_branches();
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.1);
  for (int s = 0; s < kRanks; ++s) {
    alone_optimizer.zero_grad();
    const int with_data = kRanks - s;
    for (int rank = s; rank < kRanks; ++rank) {
      const auto loss = loss_of(alone->forward(input_of(rank), "abc"));
      loss.backward(torch::full_like(loss, 1.0 / with_data));
    }
    alone_optimizer.step();
  }
  comm::run_ranks(kRanks, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group, small_buckets());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    int batches = group.rank() + 1;
    int steps = 0;
    while (auto step = replica.begin_uneven_step(batches > 0)) {
      if (step->has_data()) {
        --batches;
        step->backward(loss_of(net->forward(input_of(group.rank()), "abc")));
      } else {
        step->without_data();
      }
      step->apply(optimizer);
      ++steps;
    }
    EXPECT_EQ(steps, kRanks);
    for (const auto& p : net->named_parameters()) {
      EXPECT_TRUE(torch::allclose(p.value(), alone->named_parameters()[p.key()], 1e-5, 1e-6));
    }
  });
}

TEST(UnevenData, MayBeDividedByAllRanks) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = make_branches();
    DistributedDataParallel replica(*net, group);
    auto step = replica.begin_uneven_step(group.rank() == 0, 1,
                                          DistributedDataParallel::DivideBy::all_ranks);
    const auto loss = loss_of(net->forward(input_of(0), "abc"));
    if (step->has_data()) {
      step->backward(loss);
    } else {
      step->without_data();
    }
    const auto reduced = gradients_of(*net);
    for (auto& p : net->parameters()) p.mutable_grad().reset();
    auto again = make_branches();
    loss_of(again->forward(input_of(0), "abc")).backward();
    EXPECT_TRUE(torch::allclose(reduced.at("a.weight"), again->a->weight.grad() / 2));
  });
}

std::string error_of(const std::function<void(comm::Group&)>& body);

TEST(UnevenData, BackwardOnARankWithoutDataIsRefused) {
  EXPECT_EQ(error_of([](comm::Group& group) {
              auto net = make_branches();
              DistributedDataParallel replica(*net, group);
              auto step = replica.begin_uneven_step(group.rank() != 1);
              step->backward(loss_of(net->forward(input_of(0), "abc")));
            }),
            "this rank has no data in this step; call without_data()");
}

std::string error_of(const std::function<void(comm::Group&)>& body) {
  try {
    comm::run_ranks(3, body, {.limits = {.timeout = 10s}});
  } catch (const RuntimeError& e) {
    return e.what();
  }
  return "no error";
}

TEST(StepAgreement, ARankThatLeftOutAStepIsNamed) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                for (int batch = 0; batch < 5; ++batch) {
                  if (batch == 2 && group.rank() == 1) continue;
                  auto step = replica.begin_step(1, batch);
                  step.backward(loss_of(net->forward(input_of(0), "abc")));
                }
              }),
              HasSubstr("rank 0 is in step 3 with 1 micro-batch (tag 2), rank 1 in step 3 with 1 "
                        "micro-batch (tag 3)"));
}

TEST(StepAgreement, ALossThatIsNotANumberNamesItsRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error_of([&](comm::Group& group) {
                  auto net = make_branches();
                  DistributedDataParallel replica(*net, group);
                  auto step = replica.begin_step();
                  const auto loss = loss_of(net->forward(input_of(0), "abc"));
                  step.backward(group.rank() == 2 ? loss * bad : loss);
                }),
                HasSubstr("the loss is not finite on rank 2 in step 1"));
  }
}

struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    register_module("one", one);
    register_module("two", two);
    register_module("three", three);
  }
  torch::Tensor middle(const torch::Tensor& x) {
    return torch::dropout(torch::tanh(two(x)), 0.3, is_training());
  }
  torch::Tensor forward(const torch::Tensor& x, bool save_memory, int times) {
    auto y = torch::tanh(one(x));
    for (int i = 0; i < times; ++i) {
      y = save_memory ? checkpointed([this](const auto& in) { return middle(in[0]); }, {y},
                                     two->parameters())
                      : middle(y);
    }
    return three(y);
  }
  torch::nn::Linear one{4, 5};
  torch::nn::Linear two{5, 5};
  torch::nn::Linear three{5, 2};
};
TORCH_MODULE(Deep);

TEST(ActivationCheckpoint, GradientsAreTheSameToTheBitWithDropoutToo) {
  for (const int times : {1, 2}) {
    std::vector<std::map<std::string, torch::Tensor>> results;
    for (const bool save_memory : {false, true}) {
      torch::manual_seed(3);
      Deep net;
      loss_of(net->forward(input_of(0), save_memory, times)).backward();
      results.push_back(gradients_of(*net));
    }
    ASSERT_EQ(results[0].size(), 6U);
    for (const auto& [name, gradient] : results[0]) {
      EXPECT_TRUE(torch::equal(gradient, results[1].at(name))) << name << ", " << times << " times";
    }
  }
}

TEST(ActivationCheckpoint, WorksWithBucketsWithoutAStaticGraph) {
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Deep(); });
    net->eval();  // threads share the random generator
    DistributedDataParallel replica(*net, group, small_buckets());
    std::vector<std::map<std::string, torch::Tensor>> results;
    for (const bool save_memory : {false, true, true}) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()), save_memory, 2)));
      results.push_back(gradients_of(*net));
    }
    expect_close(results[0], results[1]);
    expect_close(results[0], results[2]);
  });
}

// Checkpointed segments as models use them (pytorch/pytorch#69060): once, twice, with a branch that
// nobody uses, with weights that two segments share, with a number of segments that changes.
struct SegmentCase {
  const char* name;
  bool with_unused;
  std::vector<int> times;  // how often the shared middle layer is used, by step
  bool allow_unused;
  bool static_graph;
};

class CheckpointedSegments : public testing::TestWithParam<SegmentCase> {};

TEST_P(CheckpointedSegments, GiveTheGradientsOfOneProcessWithoutThem) {
  const auto& c = GetParam();
  const auto make = [&c] {
    auto net = seeded([] { return Deep(); });
    net->eval();  // threads share the random generator
    if (c.with_unused) net->register_module("unused", torch::nn::Linear(2, 2));
    return net;
  };
  std::vector<std::map<std::string, torch::Tensor>> expected;
  auto alone = make();
  for (const int times : c.times) {
    for (auto& p : alone->parameters()) p.mutable_grad().reset();
    for (int rank = 0; rank < 2; ++rank) {
      const auto loss = loss_of(alone->forward(input_of(rank), false, times));
      loss.backward(torch::full_like(loss, 0.5));
    }
    expected.push_back(gradients_of(*alone));
  }
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = make();
    auto options = small_buckets();
    options.allow_unused = c.allow_unused;
    options.static_graph = c.static_graph;
    DistributedDataParallel replica(*net, group, options);
    for (std::size_t i = 0; i < c.times.size(); ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()), true, c.times[i])));
      expect_close(gradients_of(*net), expected[i]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Uses, CheckpointedSegments,
    testing::Values(SegmentCase{"once", false, {1, 1, 1}, false, false},
                    SegmentCase{"twice_with_shared_weights", false, {2, 2, 2}, false, false},
                    SegmentCase{"dynamic", false, {1, 3, 2}, false, false},
                    SegmentCase{"dynamic_and_sometimes_unused", false, {1, 0, 2}, true, false},
                    SegmentCase{"beside_an_unused_layer", true, {2, 2, 2}, true, false},
                    SegmentCase{"once_static", false, {1, 1, 1}, false, true},
                    SegmentCase{"twice_static", false, {2, 2, 2}, false, true},
                    SegmentCase{"unused_static", true, {2, 2, 2}, false, true}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// Activation checkpointing by hand: a function whose backward runs a backward of its own, which
// gives the layer's parameters gradients at once, one for each use.
class NestedBackward : public torch::autograd::Function<NestedBackward> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    const torch::NoGradGuard no_grad;
    return layer->forward(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode with_grad(true);
    layer->forward(x).backward(gradients[0]);
    std::this_thread::sleep_for(10ms);  // in which a bucket that was sent too early is reduced
    return {x.grad(), torch::Tensor()};
  }
};

torch::Tensor nested_loss(Deep& net, const torch::Tensor& x, int times = 2) {
  auto y = torch::tanh(net->one(x));
  for (int i = 0; i < times; ++i) y = torch::tanh(NestedBackward::apply(y, net->two.get()));
  return loss_of(net->three(y));
}

TEST(NestedBackward, AParameterWithSeveralGradientsNeedsAStaticGraph) {
  auto alone = seeded([] { return Deep(); });
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = nested_loss(alone, input_of(rank));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const auto expected = gradients_of(*alone);
  ASSERT_EQ(expected.size(), 6U);
  comm::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Deep(); });
    auto options = small_buckets();
    options.static_graph = true;
    DistributedDataParallel replica(*net, group, options);
    for (int i = 0; i < 3; ++i) {
      auto step = replica.begin_step();
      step.backward(nested_loss(net, input_of(group.rank())));
      expect_close(gradients_of(*net), expected);
    }
  });
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = seeded([] { return Deep(); });
                DistributedDataParallel replica(*net, group, small_buckets());
                auto step = replica.begin_step();
                step.backward(nested_loss(net, input_of(group.rank())));
              }),
              AllOf(HasSubstr("parameter 'two."), HasSubstr("got its gradient twice"),
                    HasSubstr("ddp::checkpointed()")));
}

TEST(NestedBackward, MoreGradientsThanInTheFirstStepAreNotStatic) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = seeded([] { return Deep(); });
                auto options = small_buckets();
                options.static_graph = true;
                DistributedDataParallel replica(*net, group, options);
                for (const int times : {1, 2}) {
                  auto step = replica.begin_step();
                  step.backward(nested_loss(net, input_of(group.rank()), times));
                }
              }),
              AllOf(HasSubstr("parameter 'two."), HasSubstr("the graph is not static")));
}

TEST(StepAgreement, AStepThatOneRankAloneBeganInVainIsFound) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                if (group.rank() == 1) replica.begin_step();
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 1 in step 2 with"));
}

// Of the same length, so that no message is too short: only the values would have been wrong.
TEST(StepAgreement, AnotherCollectiveOfTheSameLengthIsNamed) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                group.all_reduce_value(
                    1.0F, group.rank() == 1 ? comm::ReduceOp::max : comm::ReduceOp::sum);
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              AllOf(HasSubstr("rank 1 called all_reduce #"), HasSubstr("maximum of 1 float32"),
                    HasSubstr("sum of 1 float32")));
}

// The recorders hold the last collectives only.
TEST(StepAgreement, AnotherCollectiveOfLongAgoIsFound) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                group.all_reduce_value(
                    1.0F, group.rank() == 1 ? comm::ReduceOp::max : comm::ReduceOp::sum);
                for (int i = 0; i < 100; ++i) group.barrier().wait();
                auto step = replica.begin_step();
                step.backward(loss_of(net->forward(input_of(0), "abc")));
              }),
              HasSubstr("different collectives before step 1"));
}

TEST(StepAgreement, AnotherNumberOfMicroBatchesIsNamed) {
  EXPECT_THAT(error_of([](comm::Group& group) {
                auto net = make_branches();
                DistributedDataParallel replica(*net, group);
                const int micro_batches = group.rank() == 2 ? 2 : 1;
                auto step = replica.begin_step(micro_batches);
                for (int i = 0; i < micro_batches; ++i) {
                  step.backward(loss_of(net->forward(input_of(0), "abc")));
                }
              }),
              HasSubstr("rank 0 is in step 1 with 1 micro-batch (tag 0), rank 2 in step 1 with 2 "
                        "micro-batches (tag 0)"));
}

}  // namespace
}  // namespace ddp
