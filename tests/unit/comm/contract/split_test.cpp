// SPDX-License-Identifier: Apache-2.0
// Groups of some of the ranks: who is in them, and what they do at the same time.
#include <array>
#include <string>
#include <vector>

#include "base/errors.h"
#include "tests/unit/comm/contract/group_contract.h"

namespace ddp::comm::test {
namespace {

using testing::Each;

class GroupParts : public SplitContract {};

INSTANTIATE_TEST_SUITE_P(Of, GroupParts, testing::ValuesIn(kAllKinds), name_of_kind);

// Expects that an all_reduce adds this rank's numbers to those of all ranks of the group.
void expect_sums(const GpuRank& r, Group& group) {
  const Numbers data(r, 100);
  data.fill(1);
  group.all_reduce(data.buffer, ReduceOp::sum).wait();
  EXPECT_THAT(data.get(), Each(static_cast<float>(group.size())));
  EXPECT_EQ(group.all_reduce_value<std::int64_t>(1, ReduceOp::sum), group.size());
}

TEST_P(GroupParts, HaveTheRanksOfTheirColorInTheOrderOfTheKeys) {
  run_all_sizes([](GpuRank r) {
    const int color = r.rank % 3 == 2 ? -1 : r.rank % 3;
    Group* const part = r.group.split(color, -r.rank, "part");
    if (color < 0) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    ASSERT_NE(part, nullptr);
    std::vector<int> expected;  // the keys reverse the order
    std::vector<std::string> texts;
    for (int rank = r.group.size() - 1; rank >= 0; --rank) {
      if (rank % 3 != color) continue;
      expected.push_back(rank);
      texts.push_back(std::to_string(rank));
    }
    std::vector<int> found;
    for (int rank = 0; rank < part->size(); ++rank) found.push_back(part->world_rank(rank));
    EXPECT_EQ(found, expected);
    EXPECT_EQ(part->world_rank(part->rank()), r.rank);
    EXPECT_EQ(part->all_gather_text(std::to_string(r.rank)), texts);
    EXPECT_EQ(part->broadcast_text(texts.front(), part->size() - 1), texts.front());
    expect_sums(r, *part);
  });
}

// Each part runs other collectives than the other one, and the whole yet other ones, all at once.
TEST_P(GroupParts, CommunicateAtTheSameTimeWithoutMixing) {
  run(4, [](GpuRank r) {
    const bool even = r.rank % 2 == 0;
    Group& part = *r.group.split(r.rank % 2, 0, even ? "even" : "odd");
    const Numbers of_all(r, 100);
    const Numbers data(r, 300);
    const Numbers gathered(r, 600);
    for (int round = 0; round < 10; ++round) {
      const auto number = [&](int rank) { return static_cast<float>(10 * rank + round); };
      of_all.fill(number(r.rank));
      data.fill(number(r.rank));
      const Work whole = r.group.all_reduce(of_all.buffer, ReduceOp::sum);
      if (even) {
        part.all_reduce(data.buffer, ReduceOp::sum).wait();
        EXPECT_THAT(data.get(), Each(number(0) + number(2)));
        part.barrier().wait();
      } else {
        part.all_gather(data.buffer, gathered.buffer).wait();
        std::vector<float> expected(600, number(1));
        std::fill(expected.begin() + 300, expected.end(), number(3));
        EXPECT_EQ(gathered.get(), expected);
      }
      whole.wait();
      EXPECT_THAT(of_all.get(), Each(static_cast<float>(60 + 4 * round)));
    }
  });
}

// A mesh: each rank is in a row and in a column, and calls both in any order. On one stream, all
// would wait for each other.
TEST_P(GroupParts, RanksMayBeInSeveral) {
  run(4, [](GpuRank r) {
    Group& row = *r.group.split(r.rank / 2, 0, "row");
    Group& column = *r.group.split(r.rank % 2, 0, "column");
    const Numbers in_row(r, 100);
    const Numbers in_column(r, 200);
    for (int round = 0; round < 10; ++round) {
      in_row.fill(static_cast<float>(r.rank));
      in_column.fill(static_cast<float>(r.rank));
      const bool row_first = (r.rank == 0 || r.rank == 3) == (round % 2 == 0);
      std::vector<Work> works;
      if (row_first) works.push_back(row.all_reduce(in_row.buffer, ReduceOp::sum));
      works.push_back(column.all_reduce(in_column.buffer, ReduceOp::sum));
      if (!row_first) works.push_back(row.all_reduce(in_row.buffer, ReduceOp::sum));
      for (const auto& work : works) work.wait();
      EXPECT_THAT(in_row.get(), Each(r.rank < 2 ? 1 : 5));
      EXPECT_THAT(in_column.get(), Each(r.rank % 2 == 0 ? 2 : 4));
    }
  });
}

TEST_P(GroupParts, CanBeSplitAgain) {
  run(4, [](GpuRank r) {
    Group& half = *r.group.split(r.rank / 2, 0, "half");
    Group& alone = *half.split(half.rank(), 0, "alone");
    Group* const corner = half.split(half.rank() == 0 ? 0 : -1);
    EXPECT_EQ(half.world_rank(0), r.rank / 2 * 2);
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(alone.world_rank(0), r.rank);
    EXPECT_EQ(corner != nullptr, r.rank % 2 == 0);
    for (Group* group : {&r.group, &half, &alone}) expect_sums(r, *group);
  });
}

TEST_P(GroupParts, HaveChannels) {
  run(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2, 0, "part");
    Group& norm = part.channel("norm");
    EXPECT_EQ(&part.channel("norm"), &norm);
    EXPECT_EQ(norm.world_rank(1), r.rank % 2 + 2);
    expect_sums(r, norm);
    expect_sums(r, r.group.channel("norm"));
    expect_sums(r, *norm.split(0));
  });
}

TEST_P(GroupParts, HaveMemory) {
  run(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2, 0, "part");
    const Numbers data(r, part.allocate(4096), 1024);
    for (int round = 0; round < 3; ++round) {
      data.fill(static_cast<float>(r.rank));
      part.all_reduce(data.buffer, ReduceOp::sum).wait();
      EXPECT_THAT(data.get(), Each(r.rank % 2 == 0 ? 2 : 4));
    }
  });
}

TEST_P(GroupParts, MessagesGoByTheRanksOfThePart) {
  run(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2, -r.rank);  // ranks 2 and 0, and 3 and 1
    const Numbers in_part(r, 10);
    const Numbers in_world(r, 10);
    if (part.rank() == 0) {
      in_part.fill(static_cast<float>(100 + r.rank));
      in_world.fill(static_cast<float>(200 + r.rank));
      const Work sent = part.send(in_part.buffer, 1);
      r.group.send(in_world.buffer, r.rank - 2).wait();
      sent.wait_host();
    } else {
      r.group.receive(in_world.buffer, r.rank + 2).wait();
      part.receive(in_part.buffer, 0).wait();
      EXPECT_THAT(in_world.get(), Each(static_cast<float>(202 + r.rank)));
      EXPECT_THAT(in_part.get(), Each(static_cast<float>(102 + r.rank)));
    }
  });
}

TEST_P(GroupParts, HaveCallHistoriesOfTheirOwn) {
  std::array<std::uint64_t, 4> histories{};
  run(4, [&](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2);
    const auto before = r.group.call_history();
    const Numbers data(r, 10);
    r.rank % 2 == 0 ? part.barrier().wait_host()
                    : part.all_reduce(data.buffer, ReduceOp::sum).wait_host();
    EXPECT_EQ(r.group.call_history(), before);
    histories.at(static_cast<std::size_t>(r.rank)) = part.call_history();
  });
  EXPECT_EQ(histories[0], histories[2]);
  EXPECT_EQ(histories[1], histories[3]);
  EXPECT_NE(histories[0], histories[1]);
}

TEST_P(GroupParts, RefuseRanksOutside) {
  run(4, [](GpuRank r) {
    Group& part = *r.group.split(r.rank % 2);
    const Numbers data(r, 1);
    EXPECT_THROW(part.send(data.buffer, 2), std::invalid_argument);
    EXPECT_THROW(part.broadcast(data.buffer, 3), std::invalid_argument);
  });
}

TEST_P(GroupParts, LongNameIsRefusedOnAllRanks) {
  run(3, [](GpuRank r) {
    const std::string name(r.rank == 1 ? 49 : 3, 'x');
    EXPECT_THROW(r.group.split(0, 0, name), UsageError);
    expect_sums(r, r.group);
  });
}

}  // namespace
}  // namespace ddp::comm::test
