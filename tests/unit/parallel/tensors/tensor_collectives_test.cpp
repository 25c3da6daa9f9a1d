// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: compares collectives on tensors with values computed by one thread, for all
// types and layouts.
#include "ddp_runtime/parallel/tensors/tensor_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp {
namespace {

using comm::Group;
using comm::ReduceOp;
using testing::AllOf;
using testing::HasSubstr;

// Types that can be moved and added, and those that can only be moved on the fake device.
const std::vector<torch::ScalarType>& types() {
  static const std::vector<torch::ScalarType> on_cpus{
      torch::kBool,    torch::kUInt8,   torch::kInt8,         torch::kInt16,
      torch::kInt32,   torch::kInt64,   torch::kFloat16,      torch::kBFloat16,
      torch::kFloat32, torch::kFloat64, torch::kComplexFloat, torch::kComplexDouble};
  return on_cpus;
}

// Small whole numbers, which any type represents, and whose sums are exact.
torch::Tensor numbers(int rank, const std::vector<std::int64_t>& shape, torch::ScalarType type) {
  std::int64_t count = 1;
  for (const auto n : shape) count *= n;
  auto values = (torch::arange(count, torch::kInt64) * 7 + rank * 3) % 11;
  if (type == torch::kBool) return (values % 5 == rank % 5).view(shape);
  if (type != torch::kUInt8) values = values - 5;
  if (c10::isComplexType(type)) {
    const auto real = values.to(c10::toRealValueType(type));
    return torch::complex(real, real * 2 + 1).view(shape);
  }
  return values.to(type).view(shape);
}

// The same values in another layout. `keep_alive` has the memory around it.
struct Layout {
  const char* name;
  std::vector<std::int64_t> shape;
  std::function<torch::Tensor(const torch::Tensor&)> make;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {"contiguous", {4, 6}, [](const torch::Tensor& t) { return t.clone(); }},
      {"transposed", {4, 6}, [](const torch::Tensor& t) { return t.t().contiguous().t(); }},
      {"every second column",
       {4, 6},
       [](const torch::Tensor& t) {
         auto wide = torch::zeros({4, 12}, t.options());
         auto view = wide.slice(1, 0, 12, 2);
         view.copy_(t);
         return view;
       }},
      {"channels last",
       {2, 3, 4, 2},
       [](const torch::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); }},
      {"in the middle",
       {4, 6},
       [](const torch::Tensor& t) {
         auto view = torch::zeros({6, 6}, t.options()).slice(0, 1, 5);
         view.copy_(t);
         return view;
       }},
      {"0-d", {}, [](const torch::Tensor& t) { return t.clone(); }},
      {"empty", {0, 3}, [](const torch::Tensor& t) { return t.clone(); }}};
  return all;
}

torch::Tensor make(const Layout& layout, int rank, torch::ScalarType type) {
  return layout.make(test::on_test_device(numbers(rank, layout.shape, type)));
}

testing::AssertionResult same_values(const torch::Tensor& actual, const torch::Tensor& expected) {
  // Comparisons of truth values do not distinguish 1 from other bytes.
  const auto on_cpu = [](const torch::Tensor& t) {
    const auto values = t.detach().to(torch::kCPU).contiguous();
    return values.scalar_type() == torch::kBool ? values.view(torch::kUInt8) : values;
  };
  const auto a = on_cpu(actual);
  const auto b = on_cpu(expected);
  if (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && torch::equal(a, b)) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << a << "\ninstead of\n" << b;
}

torch::Tensor reduced(const std::vector<torch::Tensor>& all, ReduceOp op) {
  torch::Tensor result = all.front().clone();
  const bool is_bool = result.scalar_type() == torch::kBool;
  for (std::size_t r = 1; r < all.size(); ++r) {
    switch (op) {
      case ReduceOp::sum:
        result = is_bool ? result.logical_or(all[r]) : (result + all[r]);
        break;
      case ReduceOp::min:
        result = torch::min(result.to(torch::kFloat64), all[r].to(torch::kFloat64))
                     .to(result.scalar_type());
        break;
      case ReduceOp::max:
        result = torch::max(result.to(torch::kFloat64), all[r].to(torch::kFloat64))
                     .to(result.scalar_type());
        break;
    }
  }
  return result;
}

// Runs `body` for each type and layout, with 1 to 8 ranks.
void for_each_case(
    const std::function<void(Group&, const Layout&, torch::ScalarType, const std::string&)>& body) {
  for (const int ranks : test::on_device() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}) {
    test::run_ranks(ranks, [&](Group& group) {
      for (const auto type : types()) {
        for (const auto& layout : layouts()) {
          body(group, layout, type,
               std::string(c10::toString(type)) + ", " + layout.name + ", " +
                   std::to_string(ranks) + " ranks");
        }
      }
    });
  }
}

TEST(TensorCollectives, AllReduceEveryTypeAndLayout) {
  for_each_case(
      [](Group& group, const Layout& layout, torch::ScalarType type, const std::string& name) {
        std::vector<torch::Tensor> all;
        for (int r = 0; r < group.size(); ++r) all.push_back(numbers(r, layout.shape, type));
        for (const auto op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
          const auto tensor = make(layout, group.rank(), type);
          const auto strides = tensor.strides().vec();
          if (c10::isComplexType(type) && op != ReduceOp::sum) {
            EXPECT_THAT(error_of([&] { all_reduce(group, tensor, op); }),
                        HasSubstr("complex numbers have no order"));
            continue;
          }
          all_reduce(group, tensor, op);
          EXPECT_TRUE(same_values(tensor, reduced(all, op))) << name;
          EXPECT_EQ(tensor.strides().vec(), strides) << name;
        }
      });
}

TEST(TensorCollectives, BroadcastEveryTypeAndLayout) {
  for_each_case(
      [](Group& group, const Layout& layout, torch::ScalarType type, const std::string& name) {
        for (const int root : {0, group.size() - 1}) {
          const auto tensor = make(layout, group.rank(), type);
          broadcast(group, tensor, root);
          EXPECT_TRUE(same_values(tensor, numbers(root, layout.shape, type))) << name;
        }
      });
}

TEST(TensorCollectives, AllGatherEveryTypeAndLayout) {
  for_each_case([](Group& group, const Layout& layout, torch::ScalarType type,
                   const std::string& name) {
    const auto input = make(layout, group.rank(), type);
    const auto parts = all_gather(group, input);
    std::vector<torch::Tensor> expected;
    for (int r = 0; r < group.size(); ++r) {
      expected.push_back(numbers(r, layout.shape, type));
      EXPECT_TRUE(same_values(parts[static_cast<std::size_t>(r)], expected.back())) << name;
    }
    // Into a tensor of another layout: the ranks are its last dimension.
    const auto whole = torch::stack(expected);
    const auto output =
        test::on_test_device(torch::zeros_like(whole)).movedim(0, -1).contiguous().movedim(-1, 0);
    all_gather(group, output, input);
    EXPECT_TRUE(same_values(output, whole)) << name;
    EXPECT_TRUE(same_values(input, numbers(group.rank(), layout.shape, type))) << name;
  });
}

TEST(TensorCollectives, ReduceScatterEveryTypeAndLayout) {
  for_each_case(
      [](Group& group, const Layout& layout, torch::ScalarType type, const std::string& name) {
        if (std::string(layout.name) == "channels last") return;  // has the input's dimensions
        std::vector<std::int64_t> shape{group.size()};
        shape.insert(shape.end(), layout.shape.begin(), layout.shape.end());
        std::vector<torch::Tensor> all;
        for (int r = 0; r < group.size(); ++r) all.push_back(numbers(r, shape, type));
        const auto mine = test::on_test_device(all[static_cast<std::size_t>(group.rank())]);
        for (const bool contiguous : {true, false}) {
          const auto input =
              contiguous ? mine.clone() : mine.movedim(0, -1).contiguous().movedim(-1, 0);
          const auto output = make(layout, 0, type);
          reduce_scatter(group, output, input);
          EXPECT_TRUE(same_values(output, reduced(all, ReduceOp::sum)[group.rank()])) << name;
          EXPECT_TRUE(same_values(input, mine)) << "the input changed: " << name;
        }
      });
}

TEST(TensorCollectives, MessagesOfEveryTypeAndLayout) {
  for_each_case(
      [](Group& group, const Layout& layout, torch::ScalarType type, const std::string& name) {
        if (group.size() == 1) return;
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        const auto received = make(layout, group.rank(), type);
        auto sending = start_send(group, make(layout, group.rank(), type), next);
        receive(group, received, previous);
        sending.wait();
        EXPECT_TRUE(same_values(received, numbers(previous, layout.shape, type))) << name;
      });
}

// Rank a sends rank b a + 2 b rows, and none if that is 3.
std::int64_t rows_between(int from, int to) {
  return from + 2 * to == 3 ? 0 : from + 2 * to;
}

TEST(TensorCollectives, AllToAllOfEqualAndUnequalParts) {
  for (const int ranks : {1, 2, 3, 4}) {
    test::run_ranks(ranks, [&](Group& group) {
      for (const auto type : types()) {
        for (const bool equal_parts : {true, false}) {
          RowsPerRank rows;
          std::vector<torch::Tensor> sent;
          std::vector<torch::Tensor> expected;
          for (int peer = 0; peer < ranks; ++peer) {
            rows.input.push_back(equal_parts ? 2 : rows_between(group.rank(), peer));
            rows.output.push_back(equal_parts ? 2 : rows_between(peer, group.rank()));
            sent.push_back(numbers(group.rank() * 10 + peer, {rows.input.back(), 3}, type));
            expected.push_back(numbers(peer * 10 + group.rank(), {rows.output.back(), 3}, type));
          }
          if (equal_parts) rows = {};
          const auto input = test::on_test_device(torch::cat(sent)).t().contiguous().t();
          const auto output = torch::zeros_like(test::on_test_device(torch::cat(expected)));
          all_to_all(group, output, input, rows);
          EXPECT_TRUE(same_values(output, torch::cat(expected)));
          const auto transposed = torch::zeros_like(output.t()).contiguous().t();
          start_all_to_all(group, transposed, input, rows).wait();
          EXPECT_TRUE(same_values(transposed, torch::cat(expected)));
        }
      }
    });
  }
}

TEST(TensorCollectives, StridedResultLeavesTheMemoryAroundIt) {
  test::run_ranks(2, [](Group& group) {
    const auto wide = test::on_test_device(torch::full({3, 4}, 7.0));
    wide.slice(1, 0, 4, 2).fill_(group.rank() + 1);
    all_reduce(group, wide.slice(1, 0, 4, 2));
    const auto expected = torch::tensor({3.0, 7.0, 3.0, 7.0}, torch::kFloat32).expand({3, 4});
    EXPECT_TRUE(same_values(wide, expected));
  });
}

TEST(TensorCollectives, ConjugatedViewsHaveTheirValues) {
  test::run_ranks(2, [](Group& group) {
    const auto base = numbers(group.rank(), {4}, torch::kComplexDouble);
    const auto view = base.conj();
    const auto expected =
        (numbers(0, {4}, torch::kComplexDouble) + numbers(1, {4}, torch::kComplexDouble)).conj();
    all_reduce(group, view);
    EXPECT_TRUE(same_values(view, expected.resolve_conj()));
    EXPECT_TRUE(same_values(base, expected.conj().resolve_conj()));
  });
}

// ---- in the background

TEST(TensorCollectives, KeepTheirTensorsUntilTheyAreDone) {
  test::run_ranks(2, [](Group& group) {
    for (int round = 0; round < 20; ++round) {
      {
        // Nobody waits, and the tensors go out of scope before the other rank begins.
        const auto lost = test::on_test_device(torch::ones({1000}));
        const auto work = start_all_reduce(group, lost);
        const auto strided = test::on_test_device(torch::ones({100, 10})).t();
        const auto second = start_broadcast(group, strided, 1);
      }
      if (group.rank() == round % 2) group.barrier("a late rank").wait();
      if (group.rank() != round % 2) group.barrier("a late rank").wait();
    }
  });
}

TEST(TensorCollectives, RunInTheBackgroundInTheOrderOfTheCalls) {
  test::run_ranks(3, [](Group& group) {
    std::vector<torch::Tensor> tensors;
    std::vector<TensorWork> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(
          test::on_test_device(torch::full({4, 5}, group.rank() + i, torch::kFloat32)).t());
      works.push_back(start_all_reduce(group, tensors.back()));
    }
    for (int i = 19; i >= 0; --i) {
      auto& work = works[static_cast<std::size_t>(i)];
      work.wait();
      EXPECT_TRUE(work.done());
      work.wait();
      EXPECT_TRUE(same_values(tensors[static_cast<std::size_t>(i)],
                              torch::full({5, 4}, 3 * i + 3, torch::kFloat32)));
    }
  });
}

// ---- autograd

TEST(TensorCollectives, ParametersCanBeReducedAndBackwardNoticesIt) {
  test::run_ranks(2, [](Group& group) {
    const auto weight = test::on_test_device(torch::ones({3})).requires_grad_();
    const auto loss = (weight * weight).sum();
    all_reduce(group, weight);
    EXPECT_TRUE(same_values(weight, torch::full({3}, 2.0)));
    EXPECT_TRUE(weight.requires_grad());
    EXPECT_THAT(error_of([&] { loss.backward(); }), HasSubstr("modified by an inplace operation"));
  });
}

// ---- errors

// The errors of all ranks, which must be equal.
std::string common_error(int ranks, const std::function<void(Group&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  test::run_ranks(ranks, [&](Group& group) {
    texts[static_cast<std::size_t>(group.rank())] = error_of([&] { body(group); });
    group.barrier().wait();  // the group still works
  });
  EXPECT_THAT(texts, testing::Each(texts.front()));
  return texts.front();
}

TEST(TensorCollectives, RanksWithDifferentTensorsFailTogether) {
  const auto error = [](const std::function<torch::Tensor(int rank)>& tensor) {
    return common_error(3, [&](Group& group) {
      all_reduce(group, test::on_test_device(tensor(group.rank())), ReduceOp::sum,
                 {.label = "weights"});
    });
  };
  EXPECT_THAT(
      error([](int rank) {
        return torch::ones({rank == 1 ? 3 : 2, rank == 1 ? 2 : 3});
      }),
      AllOf(
          HasSubstr("all_reduce (weights): rank 1 passes a tensor of type Float and shape [3, 2]"),
          HasSubstr("but rank 0 passes a tensor of type Float and shape [2, 3]"),
          HasSubstr("all ranks must pass the same")));
  EXPECT_THAT(
      error([](int rank) { return torch::ones({4}, rank == 2 ? torch::kInt32 : torch::kFloat32); }),
      HasSubstr("rank 2 passes a tensor of type Int and shape [4]"));
  EXPECT_THAT(error([](int rank) { return torch::ones({4 + rank}); }),
              HasSubstr("rank 1 passes a tensor of type Float and shape [5]"));
}

TEST(TensorCollectives, RanksWithDifferentArgumentsFailTogether) {
  EXPECT_THAT(common_error(2,
                           [](Group& group) {
                             all_reduce(group, test::on_test_device(torch::ones({4})),
                                        group.rank() == 0 ? ReduceOp::sum : ReduceOp::max);
                           }),
              AllOf(HasSubstr("rank 1 passes"), HasSubstr("to be reduced by maximum, but rank 0"),
                    HasSubstr("to be reduced by sum")));
  EXPECT_THAT(common_error(2,
                           [](Group& group) {
                             broadcast(group, test::on_test_device(torch::ones({4})), group.rank());
                           }),
              AllOf(HasSubstr("from rank 1, but rank 0"), HasSubstr("from rank 0")));
  EXPECT_THAT(
      common_error(2,
                   [](Group& group) {
                     const auto input = test::on_test_device(torch::ones({group.rank() + 1, 2}));
                     all_gather(group, input);
                   }),
      HasSubstr("rank 1 passes a tensor of type Float and shape [2, 2]"));
  EXPECT_THAT(
      common_error(2,
                   [](Group& group) {
                     const auto t = test::on_test_device(torch::ones({4, group.rank() + 1}));
                     all_to_all(group, t.clone(), t);
                   }),
      HasSubstr("rank 1 passes rows like those of a tensor of type Float and shape [0, 2]"));
}

TEST(TensorCollectives, ComparisonInTheBackgroundFailsInWait) {
  EXPECT_THAT(common_error(2,
                           [](Group& group) {
                             const auto t = test::on_test_device(torch::ones(
                                 {group.rank() == 0 ? 6 : 3, group.rank() == 0 ? 1 : 2}));
                             start_all_reduce(group, t).wait();
                           }),
              HasSubstr("rank 1 passes a tensor of type Float and shape [3, 2]"));
}

TEST(TensorCollectives, ComparisonCanBeSwitchedOff) {
  test::run_ranks(2, [](Group& group) {
    const auto t =
        test::on_test_device(torch::ones({group.rank() == 0 ? 6 : 3, group.rank() == 0 ? 1 : 2}));
    const auto before = group.call_history();
    all_reduce(group, t, ReduceOp::sum, {.compare_shapes = false});
    EXPECT_TRUE(same_values(t.sum(), torch::tensor(12.0F)));
    EXPECT_NE(group.call_history(), before);
  });
}

TEST(TensorCollectives, PartsThatAreNotExpectedAreNamed) {
  const auto text = error_of([] {
    test::run_ranks(3, [](Group& group) {
      // Rank 1 sends rank 2 four rows, and rank 2 expects one.
      const bool sender = group.rank() == 1;
      const auto input = test::on_test_device(torch::ones({sender ? 6 : 3, 2}));
      const auto output = test::on_test_device(torch::ones({3, 2}));
      const RowsPerRank rows{
          sender ? std::vector<std::int64_t>{1, 1, 4} : std::vector<std::int64_t>{1, 1, 1},
          {1, 1, 1}};
      all_to_all(group, output, input, rows);
    });
  });
  EXPECT_EQ(text, "all_to_all: rank 1 sends 32 bytes to rank 2, which expects 8");
}

TEST(TensorCollectives, NameRanksOfTheJobInAPart) {
  test::run_ranks(4, [](Group& world) {
    Group& part = *world.split(world.rank() % 2);
    const auto text =
        error_of([&] { all_reduce(part, test::on_test_device(torch::ones({world.rank()}))); });
    EXPECT_THAT(text, HasSubstr(world.rank() % 2 == 1 ? "rank 3 passes" : "rank 2 passes"));
    EXPECT_THAT(text, HasSubstr(world.rank() % 2 == 1 ? "but rank 1" : "but rank 0"));
  });
}

TEST(TensorCollectives, RefuseArgumentsAtTheCall) {
  test::run_ranks(2, [](Group& group) {
    const CollectiveOptions off{.label = "x", .compare_shapes = false};
    const auto four = test::on_test_device(torch::ones({4}));
    const auto error = [](const std::function<void()>& call) {
      EXPECT_THROW(call(), UsageError);
      return error_of(call);
    };
    EXPECT_THAT(error([&] { all_reduce(group, torch::Tensor(), ReduceOp::sum, off); }),
                HasSubstr("all_reduce (x): there is no tensor"));
    EXPECT_THAT(error([&] {
                  all_reduce(group, test::on_test_device(torch::ones({1})).expand({4}),
                             ReduceOp::sum, off);
                }),
                HasSubstr("several elements of the result share memory"));
    EXPECT_THAT(error([&] { all_reduce(group, torch::eye(3).to_sparse(), ReduceOp::sum, off); }),
                HasSubstr("sparse"));
    EXPECT_THAT(error([&] { broadcast(group, four, 2, off); }),
                HasSubstr("root 2 is not a rank of the group of 2"));
    EXPECT_THAT(error([&] { send(group, four, group.rank(), off); }),
                HasSubstr("is not another rank"));
    EXPECT_THAT(error([&] { receive(group, four, -1, off); }), HasSubstr("is not another rank"));
    EXPECT_THAT(error([&] { all_gather(group, four, four, off); }),
                HasSubstr("the output must have 2 times the elements of the input"));
    EXPECT_THAT(error([&] { reduce_scatter(group, four, four, ReduceOp::sum, off); }),
                HasSubstr("the input must have 2 times the elements of the output"));
    EXPECT_THAT(error([&] { all_gather(group, four.to(torch::kInt32), four, off); }),
                HasSubstr("tensors of one type on one device"));
    EXPECT_THAT(error([&] {
                  all_to_all(group, four, four, {{1, 2}, {2, 2}}, off);
                }),
                HasSubstr("the 4 rows of the input cannot be divided among 2 ranks as [1, 2]"));
    EXPECT_THAT(error([&] { all_to_all(group, four, four.slice(0, 0, 3), {}, off); }),
                HasSubstr("the 3 rows of the input cannot be divided among 2 ranks equally"));
    EXPECT_THAT(error([&] {
                  all_to_all(group, four, four, {{1, 3}, {2, 2}}, off);
                }),
                HasSubstr("to itself"));
    EXPECT_THAT(error([&] { all_to_all(group, four.sum(), four.sum(), {}, off); }),
                HasSubstr("no dimension"));
  });
}

TEST(TensorCollectives, FailureOfARankEndsThem) {
  std::atomic<int> started{0};
  std::atomic<int> ended{0};
  const auto text = error_of([&] {
    test::run_ranks(3, [&](Group& group) {
      if (group.rank() == 2) {
        while (started < 2) std::this_thread::yield();
        throw std::runtime_error("no more tea");
      }
      ++started;
      EXPECT_EQ(error_of([&] { all_reduce(group, test::on_test_device(torch::ones({4}))); }),
                "no more tea");
      ++ended;
    });
  });
  EXPECT_EQ(text, "no more tea");
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace ddp
